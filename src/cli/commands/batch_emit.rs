//! `architect batch emit`: writes a batch for a scheduler.

use std::path::{Component, Path};

use architect::app::{ProcessEnv, collect_secrets};
use architect::config::Config;
use architect::types::pluralize;
use architect::workflow::batch::emit::{EmittedBatch, KubernetesJob, SlurmScript};
use architect::workflow::batch::{BatchCell, CommonOptions};

use super::batch;
use crate::cli::args::{EmitArgs, EmitCommand, EmitKubernetesArgs, EmitSlurmArgs};
use crate::cli::error::CliError;
use crate::cli::output;

pub(crate) fn run(command: EmitCommand, world: &ProcessEnv) -> Result<u8, CliError> {
    match command {
        EmitCommand::Slurm(args) => slurm(*args, world),
        EmitCommand::Kubernetes(args) => kubernetes(*args, world),
    }
}

fn slurm(args: EmitSlurmArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    for option in &args.sbatch {
        if !option.starts_with('-') || option.chars().any(char::is_control) {
            let text = format!("'{}' is no option of sbatch in one line", option.escape_debug());
            return Err(CliError::usage(text).hint("for example --sbatch=--partition=long"));
        }
    }
    let mut emit = args.emit;
    let folder = text(world.cwd.as_os_str())?;
    let words = typed_words(&emit)?;
    let (config, limits) = batch::load_base_config(&mut emit.batch, world)?;
    let mut plan = batch::plan_manifest(&emit.batch, &config, limits, world)?;
    let (_, cells) = plan.take_cells(&emit.batch, world)?;
    let batch = emitted(&emit, folder, words, cells.len());
    let script = SlurmScript { batch, options: args.sbatch }.render();
    print(&script, &config, world)
}

fn kubernetes(args: EmitKubernetesArgs, world: &ProcessEnv) -> Result<u8, CliError> {
    let EmitKubernetesArgs { mut emit, image, claim, mount, secret, cpu, memory } = args;
    let words = typed_words(&emit)?;
    check_mount(&emit, &mount)?;
    // The keys and the folders of the tasks are those of the containers, so only the manifest can be checked here.
    let (manifest, problems) = batch::read_manifest(&emit.batch, None, world)?;
    batch::refuse(&problems)?;
    let cells = BatchCell::all(manifest, &CommonOptions::default()).len();
    let (config, _) = batch::load_base_config(&mut emit.batch, world)?;
    let batch = emitted(&emit, mount, words, cells);
    let job = KubernetesJob { batch, image, claim, secret, cpu, memory };
    print(&job.render(), &config, world)
}

/// Fails if a file or folder of the command can't have the same path in a container.
fn check_mount(emit: &EmitArgs, mount: &str) -> Result<(), CliError> {
    if !mount.starts_with('/') || mount == "/" {
        return Err(CliError::usage(format!("--mount {mount}: not the absolute path of a folder")));
    }
    let batch = &emit.batch;
    let layers = &batch.settings.layers;
    let paths = [
        Some(Path::new(&batch.tasks)),
        batch.variants.as_deref(),
        batch.out.as_deref(),
        layers.config.as_deref(),
        layers.workspace.as_deref(),
        batch.settings.mcp_config.as_deref(),
    ];
    for path in paths.into_iter().flatten() {
        let is_above = path.components().any(|part| part == Component::ParentDir);
        if is_above || path.is_absolute() && !path.starts_with(mount) {
            let text = format!("{} is not on the volume", path.display());
            return Err(CliError::usage(text).hint(format!(
                "the current folder stands for the content of the volume, which is mounted at {mount}: name it relative to that"
            )));
        }
    }
    Ok(())
}

fn text(word: &std::ffi::OsStr) -> Result<String, CliError> {
    word.to_str().map(str::to_owned).ok_or_else(|| {
        CliError::usage(format!("{} is not UTF-8, which a script has to be", word.display()))
    })
}

/// Returns the typed words of the batch.
fn typed_words(emit: &EmitArgs) -> Result<Vec<String>, CliError> {
    if emit.batch.shard.is_some() {
        let error = CliError::usage("--shard is what each part gets");
        return Err(error.hint("--nodes N is the number of parts"));
    }
    if emit.batch.tasks == "-" {
        let error = CliError::usage("the nodes can't read the tasks from this standard input");
        return Err(error.hint("write them into a file that all nodes can read"));
    }
    emit.typed.iter().map(|word| text(word)).collect()
}

fn emitted(emit: &EmitArgs, folder: String, words: Vec<String>, cells: usize) -> EmittedBatch {
    let nodes = emit.nodes;
    if nodes.get() > cells {
        let cells = pluralize(cells, "cell", "cells");
        log::warn!("{cells} for {nodes} nodes: some nodes have nothing to do");
    }
    let (part_words, words) = words.into_iter().partition(|word| word == "--retry-failed");
    let name = batch::batch_name(&emit.batch);
    EmittedBatch { name, folder, words, part_words, cells, nodes }
}

/// Prints a script. It must not contain secrets, since other people may see it.
fn print(script: &str, config: &Config, world: &ProcessEnv) -> Result<u8, CliError> {
    if collect_secrets(config, world).mask_all(script) != script {
        return Err(CliError::usage("an option has a secret, which would stand in the script")
            .hint("set a variable on the nodes instead, as --api-key-env names one"));
    }
    output::print(script)
}
