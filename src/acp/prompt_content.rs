//! Content of prompts, converted for the model.

use std::fmt::Write as _;

use agent_client_protocol_schema::v1::{ContentBlock, EmbeddedResourceResource, Error};
use percent_encoding::percent_decode_str;

use super::session_host::with_message;
use crate::view::report::code_fence;
use crate::workspace::image::ImageSource;

/// Content of a prompt for the model.
#[derive(Debug, Default)]
pub(super) struct PromptContent {
    pub(super) text: String,
    pub(super) images: Vec<ImageSource>,
}

/// Converts the content of a prompt.
///
/// # Errors
///
/// Fails if it is empty, or has an image that can't be decoded.
pub(super) fn prompt_content(prompt: &[ContentBlock]) -> Result<PromptContent, Error> {
    let (mut text, mut attached, mut images) = (String::new(), String::new(), Vec::new());
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
                    let fence = code_fence(&content.text);
                    let end = if content.text.ends_with('\n') { "" } else { "\n" };
                    let _ = write!(attached, "\n\n{path}:\n{fence}\n{}{end}{fence}", content.text);
                }
                EmbeddedResourceResource::BlobResourceContents(content) => {
                    let _ = write!(text, "[{}, which is not text]", path_of(&content.uri));
                }
                _ => text.push_str(UNSUPPORTED),
            },
            ContentBlock::Image(image) => {
                let name = match &image.uri {
                    Some(uri) => path_of(uri),
                    None => format!("prompt-{}", images.len() + 1),
                };
                let source = ImageSource::from_base64(name, &image.data).map_err(|error| {
                    let why = format!("an image of the prompt can't be used: {error}");
                    with_message(Error::invalid_params(), why)
                })?;
                images.push(source);
            }
            ContentBlock::Audio(_) => text.push_str("[audio, which can't be played to the model]"),
            _ => text.push_str(UNSUPPORTED),
        }
    }
    text.push_str(&attached);
    match text.trim().is_empty() && images.is_empty() {
        true => Err(with_message(Error::invalid_params(), "the prompt is empty")),
        false => Ok(PromptContent { text, images }),
    }
}

const UNSUPPORTED: &str = "[content of an unknown kind]";

/// Returns the path of a `file://` URI; other URIs are returned unchanged.
fn path_of(uri: &str) -> String {
    match uri.strip_prefix("file://") {
        Some(path) => percent_decode_str(path).decode_utf8_lossy().into_owned(),
        None => uri.to_owned(),
    }
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
            prompt_content(&prompt).unwrap().text,
            "Look at [/w/a b.rs] and [b.rs](/w/b.rs).\n\n/w/a b.rs:\n````\nfn a() {}\n```\n````"
        );
    }

    #[test]
    fn an_image_is_decoded_and_an_empty_prompt_refused() {
        let image = |data: &str| ContentBlock::Image(ImageContent::new(data, "image/png"));
        let content = prompt_content(&[image("AAAA"), image("AAAB")]).unwrap();
        assert_eq!((&*content.text, content.images.len()), ("", 2));
        let second = ImageSource { name: "prompt-2".to_owned(), bytes: vec![0, 0, 1] };
        assert_eq!(content.images[1], second);
        assert!(prompt_content(&[image("?")]).is_err());
        assert!(prompt_content(&[ContentBlock::from(" \n")]).is_err());
        assert!(prompt_content(&[]).is_err());
    }
}
