//! Attacks from outside: what a model, a repository, a server or a provider tries, and what becomes of it.

mod confinement;
mod git;
mod permissions;
mod races;
mod steering;
