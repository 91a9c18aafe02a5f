//! A model that answers from a recording.

use super::player::Player;
use crate::model::{Fault, FaultKind};
use crate::port::{Model, ModelCall, ModelRequest};

/// A model that answers from a recording, in which more than one may have been asked.
pub(in crate::llm) struct ReplayModel {
    player: Player,
    /// Each model of the recording, by its name, behind its own wire.
    models: Vec<(String, Box<dyn Model>)>,
}

impl ReplayModel {
    /// Returns a model that answers as these did.
    pub(in crate::llm) fn new(player: Player, models: Vec<(String, Box<dyn Model>)>) -> Self {
        Self { player, models }
    }
}

impl Model for ReplayModel {
    fn prepare(&mut self, ask: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        let name = self.player.next_model();
        match self.models.iter_mut().find(|(known, _)| known == name) {
            Some((_, model)) => model.prepare(ask),
            None => Err(Fault::new(FaultKind::Request, "the recording has no model in it")),
        }
    }
}
