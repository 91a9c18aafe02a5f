//! Attacks from outside: what a model, a repository, a server or a provider tries, and what becomes of it.

mod confinement;
mod effects;
mod effects_grammar;
mod git;
mod hooks;
mod layers;
mod network;
mod permissions;
mod races;
mod replaced;
mod steering;
