//! Images for the model.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Tokens, word_enum};

/// An image in a message to the model or in the result of a tool call.
///
/// The text of the message contains its [`placeholder`](Self::placeholder). Clones share the content.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The name of the file, or another name for users and the model.
    pub name: Arc<str>,
    /// The format.
    pub media_type: ImageType,
    /// The width in pixels.
    pub width: u32,
    /// The height in pixels.
    pub height: u32,
    /// The estimated input tokens.
    pub tokens: Tokens,
    /// The content in Base64, the encoding of all API formats.
    pub data: Arc<str>,
}

word_enum! {
    /// The format of an image, by its media type.
    pub enum ImageType {
        /// PNG
        Png = "image/png",
        /// JPEG
        Jpeg = "image/jpeg",
        /// GIF
        Gif = "image/gif",
        /// WebP
        WebP = "image/webp",
    }
}

/// The maximum number and size of the images in one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ImageBudget {
    /// The maximum number of images.
    pub count: u64,
    /// The maximum total content, in bytes of Base64.
    pub bytes: u64,
}

impl ImageBudget {
    /// Any number of images. The default for stored sessions without a budget.
    pub const UNLIMITED: Self = Self { count: u64::MAX, bytes: u64::MAX };

    /// Returns the smaller count and the smaller size of the two.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self { count: self.count.min(other.count), bytes: self.bytes.min(other.bytes) }
    }

    pub(super) fn is_unlimited(&self) -> bool {
        *self == Self::UNLIMITED
    }
}

impl Default for ImageBudget {
    fn default() -> Self {
        Self::UNLIMITED
    }
}

impl Image {
    /// Returns the text that stands for the image: `[image shot.png, 800x600]`.
    pub fn placeholder(&self) -> String {
        format!("[image {}, {}x{}]", self.name, self.width, self.height)
    }

    /// Returns the text that stands for the image in messages without images.
    fn omitted_placeholder(&self) -> String {
        format!("[image {}, {}x{}, not shown]", self.name, self.width, self.height)
    }

    /// Returns the text of a message whose images are omitted.
    pub fn omit_all(text: &Arc<str>, images: &[Self]) -> Arc<str> {
        images.iter().fold(Arc::clone(text), |text, image| {
            text.replace(&image.placeholder(), &image.omitted_placeholder()).into()
        })
    }
}

impl Hash for Image {
    /// Hashes the length of the content only: the content is long, and equal images have the same length.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.name, self.width, self.height, self.tokens, self.data.len()).hash(state);
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({}, {} bytes of Base64)", self.placeholder(), self.data.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_names_the_images_that_are_not_shown() {
        let image = Image {
            name: "a.png".into(),
            media_type: ImageType::Png,
            width: 8,
            height: 6,
            tokens: Tokens(1),
            data: "AAAA".into(),
        };
        let text = format!("Look: {} there", image.placeholder()).into();
        let omitted = Image::omit_all(&text, std::slice::from_ref(&image));
        assert_eq!(&*omitted, "Look: [image a.png, 8x6, not shown] there");
        assert!(!format!("{image:?}").contains("AAAA"));
    }
}
