//! The content of prompts, as the text that the model reads.

use std::fmt::Write as _;

use agent_client_protocol_schema::v1::{ContentBlock, EmbeddedResourceResource, Error};
use percent_encoding::percent_decode_str;

use super::session_host::with_message;

/// Returns a prompt as text.
///
/// # Errors
///
/// Fails if it is empty.
pub(super) fn prompt_text(prompt: &[ContentBlock]) -> Result<String, Error> {
    let (mut text, mut attached) = (String::new(), String::new());
    for block in prompt {
        match block {
            ContentBlock::Text(block) => text.push_str(&block.text),
            ContentBlock::ResourceLink(link) => {
                let _ = write!(text, "[{}]({})", link.name, path_of(&link.uri));
            }
            ContentBlock::Resource(resource) => match &resource.resource {
                EmbeddedResourceResource::TextResourceContents(content) => {
                    let path = path_of(&content.uri);
                    let _ = write!(text, "[{path}]");
                    let fence = fence_for(&content.text);
                    let end = if content.text.ends_with('\n') { "" } else { "\n" };
                    let _ = write!(attached, "\n\n{path}:\n{fence}\n{}{end}{fence}", content.text);
                }
                EmbeddedResourceResource::BlobResourceContents(content) => {
                    let _ = write!(text, "[{}, which is not text]", path_of(&content.uri));
                }
                _ => text.push_str(UNSUPPORTED),
            },
            ContentBlock::Image(_) => {
                text.push_str("[an image, which can't be shown to the model]");
            }
            ContentBlock::Audio(_) => text.push_str("[audio, which can't be played to the model]"),
            _ => text.push_str(UNSUPPORTED),
        }
    }
    text.push_str(&attached);
    match text.trim().is_empty() {
        true => Err(with_message(Error::invalid_params(), "the prompt is empty")),
        false => Ok(text),
    }
}

const UNSUPPORTED: &str = "[content of an unknown kind]";

/// Returns the path of a file's address; another address as it is.
fn path_of(uri: &str) -> String {
    match uri.strip_prefix("file://") {
        Some(path) => percent_decode_str(path).decode_utf8_lossy().into_owned(),
        None => uri.to_owned(),
    }
}

/// Returns a fence that no line of a text ends.
fn fence_for(text: &str) -> String {
    let longest = text.lines().map(|line| line.chars().take_while(|c| *c == '`').count()).max();
    "`".repeat(longest.unwrap_or_default().max(2) + 1)
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::v1::{
        EmbeddedResource, ImageContent, ResourceLink, TextResourceContents,
    };

    use super::*;

    #[test]
    fn files_are_named_by_their_paths_and_their_text_follows() {
        let file = TextResourceContents::new("fn a() {}\n```", "file:///w/a%20b.rs");
        let prompt = [
            ContentBlock::from("Look at "),
            ContentBlock::Resource(EmbeddedResource::new(
                EmbeddedResourceResource::TextResourceContents(file),
            )),
            ContentBlock::from(" and "),
            ContentBlock::ResourceLink(ResourceLink::new("b.rs", "file:///w/b.rs")),
            ContentBlock::from("."),
        ];
        assert_eq!(
            prompt_text(&prompt).unwrap(),
            "Look at [/w/a b.rs] and [b.rs](/w/b.rs).\n\n/w/a b.rs:\n````\nfn a() {}\n```\n````"
        );
    }

    #[test]
    fn an_image_is_named_and_an_empty_prompt_refused() {
        let image = ContentBlock::Image(ImageContent::new("", "image/png"));
        assert!(prompt_text(&[image]).unwrap().contains("image"));
        assert!(prompt_text(&[ContentBlock::from(" \n")]).is_err());
        assert!(prompt_text(&[]).is_err());
    }
}
