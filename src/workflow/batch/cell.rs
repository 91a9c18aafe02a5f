//! The cells of a batch: one for each task in each variant.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;

use super::coordination::CellId;
use super::manifest::{BatchManifest, BatchTask, BatchVariant, TaskWorkspace};
use crate::types::Sha256Digest;

/// A task in a variant.
#[derive(Clone, Debug)]
pub struct BatchCell {
    /// The id, derived from the definition: the same definition has the same id.
    pub id: CellId,
    /// The task.
    pub task: Arc<BatchTask>,
    /// The variant; `None` in a batch without variants.
    pub variant: Option<Arc<BatchVariant>>,
}

/// Options that all cells of a command share.
#[derive(Clone, Debug, Default)]
pub struct CommonOptions {
    /// The agent of cells for which neither the task nor the variant names one.
    pub agent: String,
    /// The workspace of tasks that name none.
    pub workspace: PathBuf,
    /// Settings. Those of the task and the variant override them.
    pub sets: Vec<String>,
    /// Further options that are part of a cell's definition.
    pub others: Vec<String>,
}

/// Number of hash digits in a cell's id.
const HASH_DIGITS: usize = 16;

impl BatchCell {
    /// Returns the cells of a manifest: all variants of the first task, then all variants of the second, and so on.
    pub fn all(manifest: BatchManifest, common: &CommonOptions) -> Vec<Self> {
        let variants: Vec<Arc<BatchVariant>> =
            manifest.variants.into_iter().map(Arc::new).collect();
        let mut cells = Vec::with_capacity(manifest.tasks.len() * variants.len().max(1));
        for task in manifest.tasks.into_iter().map(Arc::new) {
            match variants.is_empty() {
                true => cells.push(Self::new(Arc::clone(&task), None, common)),
                false => cells.extend(variants.iter().map(|variant| {
                    Self::new(Arc::clone(&task), Some(Arc::clone(variant)), common)
                })),
            }
        }
        cells
    }

    fn new(
        task: Arc<BatchTask>,
        variant: Option<Arc<BatchVariant>>,
        common: &CommonOptions,
    ) -> Self {
        let mut cell = Self { id: CellId("".into()), task, variant };
        let place = match &cell.task.workspace {
            TaskWorkspace::Common => json!(common.workspace),
            TaskWorkspace::Folder(folder) => json!(folder),
            TaskWorkspace::Changes(folder) => json!([folder, "changes"]),
            TaskWorkspace::Repository { folder, commit } => json!([folder, commit]),
        };
        let definition = json!([
            cell.prompt(),
            place,
            cell.agent().unwrap_or(&common.agent),
            cell.sets(common),
            common.others,
            cell.task.setup,
            cell.task.checks,
        ]);
        let hash = Sha256Digest::of(definition.to_string().as_bytes()).to_string();
        cell.id = CellId(format!("{}#{}", cell.label(), &hash[..HASH_DIGITS]).into());
        cell
    }

    /// Returns the readable name: the id of the task, and of the variant if there is one.
    pub fn label(&self) -> String {
        match &self.variant {
            Some(variant) => format!("{}/{}", self.task.id, variant.id),
            None => self.task.id.clone(),
        }
    }

    /// Returns the id of the variant.
    pub fn variant_id(&self) -> Option<&str> {
        self.variant.as_ref().map(|variant| variant.id.as_str())
    }

    /// Returns the message for the model.
    pub fn prompt(&self) -> String {
        let task = &self.task;
        self.variant.as_ref().map_or_else(|| task.prompt.clone(), |one| one.prompt_for(task))
    }

    /// Returns the agent named by the variant or, failing that, by the task.
    pub fn agent(&self) -> Option<&str> {
        let variant = self.variant.as_ref().and_then(|variant| variant.options.agent.as_deref());
        variant.or(self.task.options.agent.as_deref())
    }

    /// Returns the settings of the command, the task and the variant, in this order. Later ones override earlier ones.
    fn sets(&self, common: &CommonOptions) -> Vec<String> {
        common.sets.iter().cloned().chain(self.manifest_sets()).collect()
    }

    /// Returns the settings of the task and the variant, in this order.
    pub fn manifest_sets(&self) -> impl Iterator<Item = String> + '_ {
        let variant = self.variant.iter().flat_map(|variant| variant.options.all_sets());
        self.task.options.all_sets().chain(variant)
    }

    /// Returns a readable and unique file name for the cell.
    pub fn file_name(&self) -> String {
        let (label, hash) = self.id.0.rsplit_once('#').unwrap_or((&self.id.0, ""));
        format!("{}-{hash}", plain_name(label))
    }
}

/// Limit of the part of a file name that comes from the user, in characters.
const MAX_NAME_LENGTH: usize = 40;

/// Returns a shortened name for a file or a branch, of ASCII letters, digits, `_` and `-`.
pub fn plain_name(label: &str) -> String {
    let fine = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let name: String = label.chars().map(fine).take(MAX_NAME_LENGTH).collect();
    let name = name.trim_matches(['-', '_']);
    if name.is_empty() { "task".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::manifest_file::ManifestText;
    use super::*;

    fn cells(tasks: &str, common: &CommonOptions) -> Vec<BatchCell> {
        let variants = "[[variant]]\nid = \"v\"\n[[variant]]\nid = \"w\"\nmodel = \"x/y\"\n";
        let (manifest, _) = BatchManifest::parse(
            ManifestText { name: "t.jsonl", text: tasks },
            Some(ManifestText { name: "v.toml", text: variants }),
            Path::new("/"),
        );
        BatchCell::all(manifest, common)
    }

    #[test]
    fn the_id_of_a_cell_is_the_hash_of_what_defines_it() {
        let tasks =
            "{\"id\": \"a b\", \"prompt\": \"One.\"}\n{\"id\": \"c\", \"prompt\": \"Two.\"}";
        let before = cells(tasks, &CommonOptions::default());
        let labels: Vec<String> = before.iter().map(BatchCell::label).collect();
        assert_eq!(labels, ["a b/v", "a b/w", "c/v", "c/w"]);
        assert!(before[0].file_name().starts_with("a-b-v-"));
        let ids =
            |cells: &[BatchCell]| cells.iter().map(|cell| cell.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&before), ids(&cells(tasks, &CommonOptions::default())));
        let after = cells(&tasks.replace("One", "Three"), &CommonOptions::default());
        let same: Vec<bool> =
            ids(&before).iter().zip(ids(&after)).map(|(one, other)| *one == other).collect();
        assert_eq!(same, [false, false, true, true]);
    }
}
