//! Reading images for models: checked, scaled down to what a provider takes, and encoded.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{
    DynamicImage, ExtendedColorType, ImageDecoder, ImageEncoder, ImageFormat, ImageReader, Limits,
    imageops,
};
use thiserror::Error;

use super::input_file::open_input;
use crate::model::{Image, ImageType, Tokens};

/// An image before it is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSource {
    /// The name of its file, or another name for people and the model.
    pub name: String,
    /// The content of its file.
    pub bytes: Vec<u8>,
}

/// What a provider takes, and what it counts.
#[derive(Debug, PartialEq, Eq)]
pub struct ImageLimits {
    /// The longest edge in pixels. Providers scale longer ones down themselves, or refuse them.
    max_edge: u32,
    /// The size of the content in bytes, before Base64.
    max_bytes: usize,
    /// The images in one request.
    pub max_images: usize,
    takes_gif: bool,
    cost: TokenCost,
}

/// How a provider counts the tokens of an image.
#[derive(Debug, PartialEq, Eq)]
enum TokenCost {
    /// One token for this many pixels.
    Pixels(u64),
    /// Some tokens, and more for each square tile with this edge.
    Tiles { base: u64, tile: u64, edge: u64 },
}

/// Anthropic, also on the clouds: at most 5 MB in Base64, and a hundred images. A longer edge is scaled down there.
pub static ANTHROPIC: ImageLimits = ImageLimits {
    max_edge: 1_568,
    max_bytes: 3_700_000,
    max_images: 100,
    takes_gif: true,
    cost: TokenCost::Pixels(750),
};

/// `OpenAI`, and servers with its API formats.
pub static OPENAI: ImageLimits = ImageLimits {
    max_edge: 2_048,
    max_bytes: 14_000_000,
    max_images: 100,
    takes_gif: true,
    cost: TokenCost::Tiles { base: 85, tile: 170, edge: 512 },
};

/// Google: at most 20 MB for a whole request.
pub static GEMINI: ImageLimits = ImageLimits {
    max_edge: 3_072,
    max_bytes: 5_000_000,
    max_images: 100,
    takes_gif: false,
    cost: TokenCost::Tiles { base: 0, tile: 258, edge: 768 },
};

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 30 << 20;

/// The largest edge of an image that is decoded, and the memory for it.
const MAX_DECODED_EDGE: u32 = 20_000;
const MAX_DECODED_BYTES: u64 = 400 << 20;

/// The largest image that is decoded.
const MAX_PIXELS: u64 = 50_000_000;

/// The quality of JPEG, in hundredths.
const JPEG_QUALITY: u8 = 85;

/// The images of one message or result.
const MAX_IMAGES: usize = 20;

/// Why an image can't be sent.
#[derive(Debug, Error)]
pub enum ImageError {
    /// It can't be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// The file is too large.
    #[error("it is larger than {} MB", MAX_FILE >> 20)]
    TooLarge,
    /// The format is unknown.
    #[error("it is not an image in PNG, JPEG, GIF or WebP")]
    UnknownFormat,
    /// There are too many pixels.
    #[error("it has {width}x{height} pixels; at most {} million are read", MAX_PIXELS / 1_000_000)]
    TooManyPixels {
        /// The width.
        width: u32,
        /// The height.
        height: u32,
    },
    /// It can't be decoded.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// There are too many images.
    #[error("at most {MAX_IMAGES} images can be given at once")]
    TooMany,
}

/// The images of a message, with their text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachedImages {
    /// A line for each image, also for one that the model does not get.
    pub lines: Vec<String>,
    /// The images for the model.
    pub images: Vec<Image>,
}

impl ImageSource {
    /// Reads a file of the user.
    ///
    /// # Errors
    ///
    /// Fails if it can't be read, or is too large.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Self::read(name, open_input(path)?)
    }

    /// Reads an open file.
    ///
    /// # Errors
    ///
    /// Fails if it can't be read, or is too large.
    fn read(name: String, file: File) -> Result<Self, ImageError> {
        Self::read_rest(name, Vec::new(), file)
    }

    /// Reads the rest of an open file, of which this was read already.
    ///
    /// # Errors
    ///
    /// Fails if it can't be read, or is too large.
    pub fn read_rest(name: String, mut bytes: Vec<u8>, file: File) -> Result<Self, ImageError> {
        file.take(MAX_FILE + 1 - bytes.len() as u64).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(ImageError::TooLarge);
        }
        Ok(Self { name, bytes })
    }

    /// Returns an image from its content in Base64.
    ///
    /// # Errors
    ///
    /// Fails if it is too large, or not Base64.
    pub fn from_base64(name: String, data: &str) -> Result<Self, ImageError> {
        if data.len() as u64 / 4 * 3 > MAX_FILE {
            return Err(ImageError::TooLarge);
        }
        let bytes = STANDARD.decode(data);
        let bytes = bytes.map_err(|error| ImageError::Damaged(error.to_string()))?;
        Ok(Self { name, bytes })
    }

    /// Returns the image in a form that a provider takes.
    ///
    /// # Errors
    ///
    /// Fails if it is too large, damaged, or not an image.
    pub fn prepare(&self, limits: &ImageLimits) -> Result<Image, ImageError> {
        let (format, decoder) = self.decoder()?;
        let (image, is_turned) = decode(decoder)?;
        let media_type = format.image_type();
        let is_taken = limits.takes_gif || media_type != ImageType::Gif;
        let is_small = image.width().max(image.height()) <= limits.max_edge
            && self.bytes.len() <= limits.max_bytes;
        // Not every provider turns it.
        if is_taken && is_small && !is_turned {
            return Ok(self.image(
                limits,
                media_type,
                (image.width(), image.height()),
                &self.bytes,
            ));
        }
        let (bytes, media_type, size) = scale(&image, media_type, limits)?;
        Ok(self.image(limits, media_type, size, &bytes))
    }

    fn image(
        &self,
        limits: &ImageLimits,
        media_type: ImageType,
        (width, height): (u32, u32),
        bytes: &[u8],
    ) -> Image {
        let tokens = limits.tokens(width, height);
        let (name, data) = (self.shown_name().into(), STANDARD.encode(bytes).into());
        Image { name, media_type, width, height, tokens, data }
    }

    /// Returns the line for a model that gets no images.
    fn describe(&self) -> Result<String, ImageError> {
        let (_, decoder) = self.decoder()?;
        let (width, height) = decoder.dimensions();
        let name = self.shown_name();
        Ok(format!("[image {name}, {width}x{height}, not shown: this model takes no images]"))
    }

    /// Returns the name without what would end a placeholder.
    fn shown_name(&self) -> String {
        let is_plain = |c: &char| !c.is_control() && !"[]".contains(*c);
        self.name.chars().filter(is_plain).take(100).collect()
    }

    /// Returns a decoder that has read the header.
    fn decoder(&self) -> Result<(Format, impl ImageDecoder + '_), ImageError> {
        if self.bytes.len() as u64 > MAX_FILE {
            return Err(ImageError::TooLarge);
        }
        let format = Format::detect(&self.bytes).ok_or(ImageError::UnknownFormat)?;
        let mut reader = ImageReader::with_format(Cursor::new(&*self.bytes), format.0);
        let mut most = Limits::default();
        most.max_image_width = Some(MAX_DECODED_EDGE);
        most.max_image_height = Some(MAX_DECODED_EDGE);
        most.max_alloc = Some(MAX_DECODED_BYTES);
        reader.limits(most);
        let decoder = reader.into_decoder().map_err(damaged)?;
        let (width, height) = decoder.dimensions();
        if u64::from(width) * u64::from(height) > MAX_PIXELS {
            return Err(ImageError::TooManyPixels { width, height });
        }
        Ok((format, decoder))
    }
}

/// A format that is read.
#[derive(Clone, Copy)]
struct Format(ImageFormat);

impl Format {
    /// Returns the format of a file by its first bytes.
    fn detect(start: &[u8]) -> Option<Self> {
        let format = image::guess_format(start).ok()?;
        let is_known = matches!(
            format,
            ImageFormat::Png | ImageFormat::Jpeg | ImageFormat::Gif | ImageFormat::WebP
        );
        is_known.then_some(Self(format))
    }

    fn image_type(self) -> ImageType {
        match self.0 {
            ImageFormat::Jpeg => ImageType::Jpeg,
            ImageFormat::Gif => ImageType::Gif,
            ImageFormat::WebP => ImageType::WebP,
            _ => ImageType::Png,
        }
    }
}

impl ImageLimits {
    /// Returns the estimated tokens of an image of this size.
    fn tokens(&self, width: u32, height: u32) -> Tokens {
        let (width, height) = (u64::from(width), u64::from(height));
        Tokens(match self.cost {
            TokenCost::Pixels(pixels) => (width * height).div_ceil(pixels),
            TokenCost::Tiles { base, tile, edge } => {
                base + tile * width.div_ceil(edge) * height.div_ceil(edge)
            }
        })
    }
}

impl AttachedImages {
    /// Prepares images for a model; without limits, it takes none. An image that can't be sent has a line that says why.
    pub fn prepare(sources: &[ImageSource], limits: Option<&ImageLimits>) -> Self {
        let mut attached = Self::default();
        for (index, source) in sources.iter().enumerate() {
            let added = match index < MAX_IMAGES {
                true => attached.add(source, limits),
                false => Err(ImageError::TooMany),
            };
            if let Err(error) = added {
                attached.lines.push(format!("[image {}, not shown: {error}]", source.shown_name()));
            }
        }
        attached
    }

    /// Prepares images of the user for a model.
    ///
    /// # Errors
    ///
    /// Fails with the name of the first image that can't be sent.
    pub fn prepare_all(
        sources: &[ImageSource],
        limits: Option<&ImageLimits>,
    ) -> Result<Self, (String, ImageError)> {
        let mut attached = Self::default();
        for (index, source) in sources.iter().enumerate() {
            let added = match index < MAX_IMAGES {
                true => attached.add(source, limits),
                false => Err(ImageError::TooMany),
            };
            added.map_err(|error| (source.name.clone(), error))?;
        }
        Ok(attached)
    }

    fn add(
        &mut self,
        source: &ImageSource,
        limits: Option<&ImageLimits>,
    ) -> Result<(), ImageError> {
        let Some(limits) = limits else {
            self.lines.push(source.describe()?);
            return Ok(());
        };
        let image = source.prepare(limits)?;
        self.lines.push(image.placeholder());
        self.images.push(image);
        Ok(())
    }

    /// Adds the lines to a text.
    pub fn add_lines_to(&self, text: &mut String) {
        for line in &self.lines {
            if !text.is_empty() {
                text.push_str(if text.ends_with('\n') { "" } else { "\n" });
            }
            text.push_str(line);
        }
    }
}

/// Returns whether a file that begins so is in a format that is read.
pub fn is_image(start: &[u8]) -> bool {
    Format::detect(start).is_some()
}

/// Returns the pixels, and whether the file says that they are to be turned.
fn decode(mut decoder: impl ImageDecoder) -> Result<(DynamicImage, bool), ImageError> {
    let orientation = decoder.orientation().map_err(damaged)?;
    let mut image = DynamicImage::from_decoder(decoder).map_err(damaged)?;
    let is_turned = orientation != image::metadata::Orientation::NoTransforms;
    image.apply_orientation(orientation);
    Ok((image, is_turned))
}

/// The bytes of an image, their format, and its size in pixels.
type EncodedImage = (Vec<u8>, ImageType, (u32, u32));

/// Scales an image down until it fits: without loss if that is small enough, and as JPEG otherwise.
fn scale(
    image: &DynamicImage,
    media_type: ImageType,
    limits: &ImageLimits,
) -> Result<EncodedImage, ImageError> {
    let mut edge = limits.max_edge.min(image.width().max(image.height()));
    let has_alpha = image.color().has_alpha();
    let source = image.to_rgba8();
    loop {
        let (width, height) = fit(source.dimensions(), edge);
        let scaled = imageops::thumbnail(&source, width, height);
        if media_type != ImageType::Jpeg || has_alpha {
            let mut bytes = Vec::new();
            PngEncoder::new_with_quality(
                &mut bytes,
                CompressionType::Default,
                FilterType::Adaptive,
            )
            .write_image(&scaled, width, height, ExtendedColorType::Rgba8)
            .map_err(damaged)?;
            if bytes.len() <= limits.max_bytes {
                return Ok((bytes, ImageType::Png, (width, height)));
            }
        }
        let mut bytes = Vec::new();
        let opaque = DynamicImage::ImageRgba8(scaled).into_rgb8();
        JpegEncoder::new_with_quality(&mut bytes, JPEG_QUALITY)
            .write_image(&opaque, width, height, ExtendedColorType::Rgb8)
            .map_err(damaged)?;
        if bytes.len() <= limits.max_bytes || edge <= 64 {
            return Ok((bytes, ImageType::Jpeg, (width, height)));
        }
        edge = edge / 4 * 3;
    }
}

/// Returns the size with this longest edge.
fn fit((width, height): (u32, u32), edge: u32) -> (u32, u32) {
    let longest = u64::from(width.max(height)).max(1);
    let part = |side: u32| {
        u32::try_from(u64::from(side) * u64::from(edge) / longest).unwrap_or(edge).max(1)
    };
    (part(width), part(height))
}

// By value, as a function for `map_err`.
#[allow(clippy::needless_pass_by_value)]
fn damaged(error: image::ImageError) -> ImageError {
    ImageError::Damaged(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(width: u32, height: u32, format: ImageFormat) -> ImageSource {
        let image = DynamicImage::new_rgb8(width, height);
        let mut bytes = Cursor::new(Vec::new());
        image.write_to(&mut bytes, format).unwrap();
        ImageSource { name: "a[1].png".to_owned(), bytes: bytes.into_inner() }
    }

    fn content(image: &Image) -> DynamicImage {
        image::load_from_memory(&STANDARD.decode(&*image.data).unwrap()).unwrap()
    }

    #[test]
    fn an_image_that_fits_is_sent_as_it_is() {
        let formats = [
            (ImageFormat::Png, ImageType::Png),
            (ImageFormat::Jpeg, ImageType::Jpeg),
            (ImageFormat::Gif, ImageType::Gif),
            (ImageFormat::WebP, ImageType::WebP),
        ];
        for (format, media_type) in formats {
            let source = encoded(30, 20, format);
            let image = source.prepare(&ANTHROPIC).unwrap();
            assert_eq!((image.media_type, image.width, image.height), (media_type, 30, 20));
            assert_eq!(STANDARD.decode(&*image.data).unwrap(), source.bytes);
            assert_eq!(image.placeholder(), "[image a1.png, 30x20]");
        }
        let gif = encoded(30, 20, ImageFormat::Gif).prepare(&GEMINI).unwrap();
        assert_eq!((gif.media_type, content(&gif).width()), (ImageType::Png, 30));
    }

    #[test]
    fn a_large_image_is_scaled_down_to_the_limit() {
        let limits = [(&ANTHROPIC, 1_568, 78), (&OPENAI, 2_048, 102), (&GEMINI, 3_072, 153)];
        for (limits, width, height) in limits {
            for format in [ImageFormat::Png, ImageFormat::Jpeg] {
                let image = encoded(4_000, 200, format).prepare(limits).unwrap();
                assert_eq!((image.width, image.height), (width, height));
                assert_eq!(content(&image).width(), width);
            }
        }
    }

    #[test]
    fn content_that_is_too_long_is_scaled_down_further() {
        let noise = |x: u32, y: u32| (x.wrapping_mul(2_654_435_761) ^ y.wrapping_mul(40_503)) >> 7;
        let pixels = image::RgbImage::from_fn(300, 300, |x, y| {
            image::Rgb([noise(x, y), noise(y, x), noise(x + y, x)].map(|n| (n & 0xff) as u8))
        });
        let mut bytes = Cursor::new(Vec::new());
        pixels.write_to(&mut bytes, ImageFormat::Png).unwrap();
        let source = ImageSource { name: "a".to_owned(), bytes: bytes.into_inner() };
        let limits = ImageLimits { max_bytes: 9_000, cost: TokenCost::Pixels(750), ..OPENAI };
        let image = source.prepare(&limits).unwrap();
        assert!(STANDARD.decode(&*image.data).unwrap().len() <= 9_000);
        assert_eq!((image.media_type, image.width < 300), (ImageType::Jpeg, true));
    }

    #[test]
    fn tokens_are_counted_as_the_providers_do() {
        assert_eq!(ANTHROPIC.tokens(1_000, 750), Tokens(1_000));
        assert_eq!(OPENAI.tokens(1_024, 600), Tokens(85 + 170 * 4));
        assert_eq!(GEMINI.tokens(768, 769), Tokens(258 * 2));
    }

    #[test]
    fn what_can_t_be_sent_has_a_reason() {
        let error = |bytes: &[u8]| {
            let source = ImageSource { name: String::new(), bytes: bytes.to_vec() };
            source.prepare(&ANTHROPIC).unwrap_err().to_string()
        };
        assert_eq!(error(b"text"), "it is not an image in PNG, JPEG, GIF or WebP");
        assert_eq!(error(b""), "it is not an image in PNG, JPEG, GIF or WebP");
        for format in [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Gif, ImageFormat::WebP] {
            let whole = encoded(300, 300, format).bytes;
            let cut = error(&whole[..whole.len().min(30)]);
            assert!(cut.starts_with("it is damaged: "), "{cut}");
        }
    }

    /// A file of some bytes that claims to be an image of many gigabytes.
    #[test]
    fn an_image_with_too_many_pixels_is_not_decoded() {
        for (width, height) in [(u32::MAX / 2, 9), (19_000, 19_000_u32)] {
            let mut bytes = encoded(1, 1, ImageFormat::Png).bytes;
            bytes[16..20].copy_from_slice(&width.to_be_bytes());
            bytes[20..24].copy_from_slice(&height.to_be_bytes());
            let mut hasher = crc32fast::Hasher::new();
            hasher.update(&bytes[12..29]);
            bytes[29..33].copy_from_slice(&hasher.finalize().to_be_bytes());
            let source = ImageSource { name: String::new(), bytes };
            assert!(source.prepare(&ANTHROPIC).is_err());
        }
    }

    #[test]
    fn a_model_without_images_gets_their_sizes_as_text() {
        let source = encoded(30, 20, ImageFormat::Png);
        let broken = ImageSource { name: "b.png".to_owned(), bytes: b"x".to_vec() };
        let attached = AttachedImages::prepare(&[source, broken], None);
        let mut text = "Seen:".to_owned();
        attached.add_lines_to(&mut text);
        assert_eq!(
            text,
            "Seen:\n[image a1.png, 30x20, not shown: this model takes no images]\n\
             [image b.png, not shown: it is not an image in PNG, JPEG, GIF or WebP]"
        );
        assert!(attached.images.is_empty());
    }

    #[test]
    fn there_may_be_too_many_images() {
        let sources = vec![encoded(1, 1, ImageFormat::Png); MAX_IMAGES + 1];
        let attached = AttachedImages::prepare(&sources, Some(&ANTHROPIC));
        assert_eq!((attached.images.len(), attached.lines.len()), (MAX_IMAGES, MAX_IMAGES + 1));
        let error = AttachedImages::prepare_all(&sources, Some(&ANTHROPIC)).unwrap_err().1;
        assert!(matches!(error, ImageError::TooMany));
    }
}
