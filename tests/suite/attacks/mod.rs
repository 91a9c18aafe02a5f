//! Attacks by a model, a repository, a server or a provider.

mod brought_files;
mod command_grammar;
mod confinement;
mod git;
mod hooks;
mod layers;
mod manifests;
mod network;
mod next_run;
mod permissions;
mod races;
mod read_only_effects;
mod replaced;
