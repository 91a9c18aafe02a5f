//! Images for models: read, checked, scaled down to a size that the provider accepts, and encoded.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crossbeam_channel::{Receiver, Sender, after, bounded, never, select, select_biased};
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::metadata::Orientation;
use image::{
    DynamicImage, ExtendedColorType, ImageDecoder, ImageEncoder, ImageFormat, ImageReader, Limits,
    imageops,
};
use thiserror::Error;

use super::input_file::open_input;
use crate::port::{CancelRegistration, CancellationToken};
use crate::types::{Image, ImageBudget, ImageType, Tokens};

/// An image before it is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSource {
    /// The name of its file, or another name for users and the model.
    pub name: String,
    /// The content of its file.
    pub bytes: Vec<u8>,
}

/// A provider's limits for images, and its token counts for them.
#[derive(Debug, PartialEq, Eq)]
pub struct ImageLimits {
    /// The maximum edge in pixels. Providers scale larger images down themselves, or reject them.
    max_edge: u32,
    /// The maximum size of the content in bytes, before Base64.
    max_bytes: usize,
    /// The maximum number and size of the images in one request.
    pub budget: ImageBudget,
    /// Whether the provider accepts WebP. All providers accept PNG and JPEG. No provider accepts every GIF, so GIF is
    /// sent as PNG.
    takes_webp: bool,
    cost: TokenCost,
}

/// A provider's token count for an image, by square tiles.
#[derive(Debug, PartialEq, Eq)]
struct TokenCost {
    /// The edge of a tile in pixels.
    edge: u64,
    /// The price of a tile in hundredths of a token.
    tile: u64,
    /// The minimum and the maximum of an image's tokens.
    range: (u64, u64),
}

/// The maximum size of the images in one request, in bytes of Base64. Google accepts 20 MB including all of the text.
/// The other providers with known limits accept more, but each request sends the images again.
const REQUEST_BYTES: u64 = 14_000_000;

/// Anthropic, including its models on cloud platforms. Up to 20 images may have edges of 8000 pixels; if there are more
/// images, only 2000. Edges above 1568 (2576 since Claude Opus 4.7) are scaled down there. 100 images in a request with
/// a window of 200k tokens, 600 with a larger one; 5 MB of Base64 each. A token has 28x28 pixels. Source:
/// <https://platform.claude.com/docs/en/build-with-claude/vision>
pub static ANTHROPIC: ImageLimits = ImageLimits {
    max_edge: 2_000,
    max_bytes: 3_700_000,
    budget: ImageBudget { count: 100, bytes: REQUEST_BYTES },
    takes_webp: true,
    cost: TokenCost { edge: 28, tile: 100, range: (0, 4_784) },
};

/// `OpenAI`, and servers with its API formats. 1500 images and 512 MB in a request; Azure accepts 50 images. `high`
/// detail allows edges of 2048 pixels. A patch of 32x32 pixels is 1.2 tokens for the newest models; models that count
/// tiles of 512 pixels have fewer. Sources: <https://developers.openai.com/api/docs/guides/images-vision>,
/// <https://learn.microsoft.com/en-us/azure/foundry/openai/quotas-limits>
pub static OPENAI: ImageLimits = SERVED_LIKE_OPENAI;

const SERVED_LIKE_OPENAI: ImageLimits = ImageLimits {
    max_edge: 2_048,
    max_bytes: 5_000_000,
    budget: ImageBudget { count: 50, bytes: REQUEST_BYTES },
    takes_webp: true,
    cost: TokenCost { edge: 32, tile: 120, range: (0, u64::MAX) },
};

/// Google. 20 MB in a request, 7 MB per image on Vertex, and 900 to 3600 images. There is no limit of pixels, so the
/// size of the content decides. Gemini 2 counts 258 tokens for a tile of 768 pixels, and Gemini 3 at most 1120 for an
/// image by default. Sources: <https://ai.google.dev/gemini-api/docs/image-understanding>,
/// <https://docs.cloud.google.com/vertex-ai/generative-ai/docs/multimodal/image-understanding>
pub static GEMINI: ImageLimits = ImageLimits {
    max_edge: 3_072,
    max_bytes: 5_000_000,
    budget: ImageBudget { count: 900, bytes: REQUEST_BYTES },
    takes_webp: true,
    cost: TokenCost { edge: 768, tile: 25_800, range: (1_120, u64::MAX) },
};

/// xAI: 20 MiB per image, any number, PNG and JPEG only. Source:
/// <https://docs.x.ai/developers/model-capabilities/images/understanding>
pub static XAI: ImageLimits = ImageLimits { takes_webp: false, ..SERVED_LIKE_OPENAI };

/// Mistral: 8 images in a request, 10 MB each. Source: <https://docs.mistral.ai/capabilities/vision/>
pub static MISTRAL: ImageLimits =
    ImageLimits { budget: ImageBudget { count: 8, bytes: REQUEST_BYTES }, ..SERVED_LIKE_OPENAI };

/// Groq: 5 images in a request, 4 MB including all of the text, 33 million pixels. Source:
/// <https://console.groq.com/docs/vision>
pub static GROQ: ImageLimits = ImageLimits {
    max_bytes: 500_000,
    budget: ImageBudget { count: 5, bytes: 3_400_000 },
    ..SERVED_LIKE_OPENAI
};

/// `DeepSeek`: 32 MiB in Base64, and at most 384 tokens per image. Source: <https://api-docs.deepseek.com>
pub static DEEPSEEK: ImageLimits =
    ImageLimits { cost: TokenCost { edge: 32, tile: 120, range: (0, 384) }, ..SERVED_LIKE_OPENAI };

/// The maximum size of a file that is read, in bytes.
const MAX_FILE: u64 = 30 << 20;

/// The maximum memory for the pixels of an image, in bytes.
const MAX_DECODED_BYTES: u64 = 200 << 20;

/// The maximum number of pixels of an image that is decoded.
const MAX_PIXELS: u64 = 50_000_000;

/// The quality of encoded JPEG, from 0 to 100.
const JPEG_QUALITY: u8 = 85;

/// The maximum number of images in one message or result.
const MAX_IMAGES: usize = 20;

/// The reason why an image can't be sent.
#[derive(Debug, Error)]
pub enum ImageError {
    /// The file can't be read.
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
    /// The pixels need too much memory.
    #[error("decoding it takes more than {} MB of memory", MAX_DECODED_BYTES >> 20)]
    TooMuchMemory,
    /// The image can't be decoded.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// There are too many images.
    #[error("at most {0} images can be given at once")]
    TooMany(usize),
    /// The run has no time left to decode the image.
    #[error("the time was over before it was decoded")]
    Stopped,
}

/// The images of a message, with their lines of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachedImages {
    /// A line for each image, even if the model does not get it.
    pub lines: Vec<String>,
    /// The images for the model.
    pub images: Vec<Image>,
}

/// The permit to decode an image. The process has only one, because decoding takes hundreds of megabytes.
struct DecodePermit;

static PERMIT: LazyLock<(Sender<()>, Receiver<()>)> = LazyLock::new(|| {
    let permit = bounded(1);
    let _ = permit.0.send(());
    permit
});

impl ImageSource {
    /// Reads a file of the user.
    ///
    /// # Errors
    ///
    /// Fails if the file can't be read, or is too large.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Self::read(name, open_input(path)?)
    }

    /// Reads an open file.
    ///
    /// # Errors
    ///
    /// Fails if the file can't be read, or is too large.
    fn read(name: String, file: File) -> Result<Self, ImageError> {
        Self::read_rest(name, Vec::new(), file)
    }

    /// Reads the rest of an open file. `bytes` were already read.
    ///
    /// # Errors
    ///
    /// Fails if the file can't be read, or is too large.
    pub fn read_rest(name: String, mut bytes: Vec<u8>, file: File) -> Result<Self, ImageError> {
        file.take(MAX_FILE + 1 - bytes.len() as u64).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(ImageError::TooLarge);
        }
        Ok(Self { name, bytes })
    }

    /// Creates an image from its content in Base64.
    ///
    /// # Errors
    ///
    /// Fails if the content is too large, or not Base64.
    pub fn from_base64(name: String, data: &str) -> Result<Self, ImageError> {
        if data.len() as u64 / 4 * 3 > MAX_FILE {
            return Err(ImageError::TooLarge);
        }
        let bytes = STANDARD.decode(data);
        let bytes = bytes.map_err(|error| ImageError::Damaged(error.to_string()))?;
        Ok(Self { name, bytes })
    }

    /// Returns the image in a form that a provider accepts. Waits while another image is being decoded, until `stop` is
    /// cancelled.
    ///
    /// # Errors
    ///
    /// Fails if the file is too large, damaged, or not an image.
    pub fn prepare(
        &self,
        limits: &ImageLimits,
        stop: &CancellationToken,
    ) -> Result<Image, ImageError> {
        let _permit = DecodePermit::acquire(stop)?;
        let (format, mut decoder) = self.decoder()?;
        let orientation = decoder.orientation().map_err(damaged)?;
        let image = DynamicImage::from_decoder(decoder).map_err(damaged)?;
        let media_type = format.image_type();
        let is_taken = match media_type {
            ImageType::Png | ImageType::Jpeg => true,
            ImageType::WebP => limits.takes_webp,
            ImageType::Gif => false,
        };
        let is_small = image.width().max(image.height()) <= limits.max_edge
            && self.bytes.len() <= limits.max_bytes;
        // Not every provider applies the orientation.
        if is_taken && is_small && orientation == Orientation::NoTransforms {
            return Ok(self.image(
                limits,
                media_type,
                (image.width(), image.height()),
                &self.bytes,
            ));
        }
        let (bytes, media_type, size) = scale(image, orientation, media_type, limits)?;
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

    /// Returns the line for a model that accepts no images.
    fn describe(&self) -> Result<String, ImageError> {
        let (_, decoder) = self.decoder()?;
        let (width, height) = decoder.dimensions();
        let name = self.shown_name();
        Ok(format!("[image {name}, {width}x{height}, not shown: this model takes no images]"))
    }

    /// Returns the line for a model that does not get the image.
    fn failure_line(&self, error: &ImageError) -> String {
        format!("[image {}, not shown: {error}]", self.shown_name())
    }

    /// Returns the name without characters that would end a placeholder.
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
        most.max_alloc = Some(MAX_DECODED_BYTES);
        reader.limits(most);
        let decoder = reader.into_decoder().map_err(damaged)?;
        let (width, height) = decoder.dimensions();
        if u64::from(width) * u64::from(height) > MAX_PIXELS {
            return Err(ImageError::TooManyPixels { width, height });
        }
        if decoder.total_bytes() > MAX_DECODED_BYTES {
            return Err(ImageError::TooMuchMemory);
        }
        Ok((format, decoder))
    }
}

/// A supported format.
#[derive(Clone, Copy)]
struct Format(ImageFormat);

impl Format {
    /// Returns the format of a file by its first bytes.
    fn detect(start: &[u8]) -> Option<Self> {
        // The library compares with the formats one by one, and most files are text.
        if !matches!(start.first()?, b'\x89' | b'\xFF' | b'G' | b'R') {
            return None;
        }
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

impl DecodePermit {
    /// Waits until no other image is being decoded.
    fn acquire(stop: &CancellationToken) -> Result<Self, ImageError> {
        let (_registration, stopped) = channel_of(stop);
        select_biased! {
            recv(stopped) -> _ => Err(ImageError::Stopped),
            recv(PERMIT.1) -> _ => Ok(Self),
        }
    }
}

impl Drop for DecodePermit {
    fn drop(&mut self) {
        let _ = PERMIT.0.send(());
    }
}

/// Returns a channel that is closed when the token is cancelled, as long as the registration lives.
fn channel_of(token: &CancellationToken) -> (CancelRegistration, Receiver<()>) {
    let (sender, receiver) = bounded(0);
    (token.on_cancel(move || drop(sender)), receiver)
}

impl ImageLimits {
    /// Returns the estimated tokens of an image of this size.
    fn tokens(&self, width: u32, height: u32) -> Tokens {
        let TokenCost { edge, tile, range: (least, most) } = self.cost;
        let tiles = u64::from(width).div_ceil(edge) * u64::from(height).div_ceil(edge);
        Tokens((tiles * tile).div_ceil(100).clamp(least, most))
    }
}

impl AttachedImages {
    /// Prepares images for a model. Without limits, the model accepts no images. An image that can't be sent has a line
    /// with the reason. Also returns whether an image could not be sent.
    pub fn prepare(
        sources: &[ImageSource],
        limits: Option<&ImageLimits>,
        stop: &CancellationToken,
    ) -> (Self, bool) {
        let (mut attached, mut has_failed) = (Self::default(), false);
        for source in sources {
            if let Err(error) = attached.add(source, limits, stop) {
                has_failed = true;
                attached.lines.push(source.failure_line(&error));
            }
        }
        (attached, has_failed)
    }

    /// Prepares images of the user for a model, on a separate thread, because a decoder can't be stopped. If `stop` is
    /// cancelled or `most` has passed before they are ready, the model gets lines in place of the images.
    ///
    /// # Errors
    ///
    /// Fails with the name of the first image that can't be sent.
    pub fn prepare_all(
        sources: Vec<ImageSource>,
        limits: Option<&'static ImageLimits>,
        stop: &CancellationToken,
        most: Option<Duration>,
    ) -> Result<Self, (String, ImageError)> {
        if sources.is_empty() {
            return Ok(Self::default());
        }
        let late = sources.iter().map(|source| source.failure_line(&ImageError::Stopped)).collect();
        let (sender, prepared) = bounded(1);
        let no_longer_needed = CancellationToken::new();
        let stop_decoding = no_longer_needed.clone();
        let prepare = move || {
            let mut attached = Self::default();
            let done = sources.into_iter().try_for_each(|source| {
                attached.add(&source, limits, &stop_decoding).map_err(|error| (source.name, error))
            });
            let _ = sender.send(done.map(|()| attached));
        };
        let spawned = thread::Builder::new().name("images".to_owned()).spawn(prepare);
        spawned.map_err(|error| (String::new(), error.into()))?;
        let (_registration, stopped) = channel_of(stop);
        let timeout = most.map_or_else(never, after);
        let done = select! {
            recv(prepared) -> done => done.ok(),
            recv(stopped) -> _ => None,
            recv(timeout) -> _ => None,
        };
        no_longer_needed.cancel();
        done.unwrap_or(Ok(Self { lines: late, images: Vec::new() }))
    }

    fn add(
        &mut self,
        source: &ImageSource,
        limits: Option<&ImageLimits>,
        stop: &CancellationToken,
    ) -> Result<(), ImageError> {
        let most = limits.and_then(|limits| usize::try_from(limits.budget.count).ok());
        let most = most.map_or(MAX_IMAGES, |most| most.min(MAX_IMAGES));
        if self.lines.len() >= most {
            return Err(ImageError::TooMany(most));
        }
        let Some(limits) = limits else {
            self.lines.push(source.describe()?);
            return Ok(());
        };
        let image = source.prepare(limits, stop)?;
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

/// Returns whether a file with this beginning is in a supported format.
pub fn is_image(start: &[u8]) -> bool {
    Format::detect(start).is_some()
}

/// The bytes of an image, their format, and its size in pixels.
type EncodedImage = (Vec<u8>, ImageType, (u32, u32));

/// Applies the orientation of an image, and scales it down until it fits. It is encoded without loss if that is small
/// enough, and as JPEG otherwise. The image itself is never copied.
fn scale(
    image: DynamicImage,
    orientation: Orientation,
    media_type: ImageType,
    limits: &ImageLimits,
) -> Result<EncodedImage, ImageError> {
    let has_alpha = image.color().has_alpha();
    let (width, height) = (image.width(), image.height());
    let mut edge = limits.max_edge.min(width.max(height));
    let mut source = match edge < width.max(height) {
        true => {
            let (width, height) = fit((width, height), edge);
            image.thumbnail_exact(width, height)
        }
        false => image,
    };
    source.apply_orientation(orientation);
    let source = source.into_rgba8();
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

/// Returns the size, reduced to this longest edge.
fn fit((width, height): (u32, u32), edge: u32) -> (u32, u32) {
    let longest = u64::from(width.max(height)).max(1);
    let part = |side: u32| {
        u32::try_from(u64::from(side) * u64::from(edge) / longest).unwrap_or(edge).max(1)
    };
    (part(width), part(height))
}

// By value, for use as a function in `map_err`.
#[allow(clippy::needless_pass_by_value)]
fn damaged(error: image::ImageError) -> ImageError {
    match error {
        image::ImageError::Limits(_) => ImageError::TooMuchMemory,
        error => ImageError::Damaged(error.to_string()),
    }
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

    fn prepare(source: &ImageSource, limits: &ImageLimits) -> Result<Image, ImageError> {
        source.prepare(limits, &CancellationToken::new())
    }

    fn content(image: &Image) -> DynamicImage {
        image::load_from_memory(&STANDARD.decode(&*image.data).unwrap()).unwrap()
    }

    #[test]
    fn an_image_that_fits_is_sent_as_it_is() {
        let formats = [
            (ImageFormat::Png, ImageType::Png),
            (ImageFormat::Jpeg, ImageType::Jpeg),
            (ImageFormat::WebP, ImageType::WebP),
        ];
        for (format, media_type) in formats {
            let source = encoded(30, 20, format);
            let image = prepare(&source, &ANTHROPIC).unwrap();
            assert_eq!((image.media_type, image.width, image.height), (media_type, 30, 20));
            assert_eq!(STANDARD.decode(&*image.data).unwrap(), source.bytes);
            assert_eq!(image.placeholder(), "[image a1.png, 30x20]");
        }
        for (format, limits) in [(ImageFormat::Gif, &ANTHROPIC), (ImageFormat::WebP, &XAI)] {
            let image = prepare(&encoded(30, 20, format), limits).unwrap();
            assert_eq!((image.media_type, content(&image).width()), (ImageType::Png, 30));
        }
    }

    #[test]
    fn a_large_image_is_scaled_down_to_the_limit() {
        let limits = [(&ANTHROPIC, 2_000, 100), (&OPENAI, 2_048, 102), (&GEMINI, 3_072, 153)];
        for (limits, width, height) in limits {
            for format in [ImageFormat::Png, ImageFormat::Jpeg] {
                let image = prepare(&encoded(4_000, 200, format), limits).unwrap();
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
        let limits = ImageLimits { max_bytes: 9_000, ..SERVED_LIKE_OPENAI };
        let image = prepare(&source, &limits).unwrap();
        assert!(STANDARD.decode(&*image.data).unwrap().len() <= 9_000);
        assert_eq!((image.media_type, image.width < 300), (ImageType::Jpeg, true));
    }

    #[test]
    fn tokens_are_counted_as_the_providers_do() {
        // The examples of the providers' documentation.
        assert_eq!(ANTHROPIC.tokens(1_000, 1_000), Tokens(1_296));
        assert_eq!(ANTHROPIC.tokens(1_920, 1_080), Tokens(2_691));
        assert_eq!(OPENAI.tokens(1_600, 1_600), Tokens(3_000));
        assert_eq!(GEMINI.tokens(768, 769), Tokens(1_120));
        assert_eq!(GEMINI.tokens(3_072, 3_072), Tokens(258 * 16));
        assert_eq!(DEEPSEEK.tokens(2_000, 2_000), Tokens(384));
    }

    #[test]
    fn what_can_t_be_sent_has_a_reason() {
        let error = |bytes: &[u8]| {
            let source = ImageSource { name: String::new(), bytes: bytes.to_vec() };
            prepare(&source, &ANTHROPIC).unwrap_err().to_string()
        };
        assert_eq!(error(b"text"), "it is not an image in PNG, JPEG, GIF or WebP");
        assert_eq!(error(b""), "it is not an image in PNG, JPEG, GIF or WebP");
        for format in [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Gif, ImageFormat::WebP] {
            let whole = encoded(300, 300, format).bytes;
            let cut = error(&whole[..whole.len().min(30)]);
            assert!(cut.starts_with("it is damaged: "), "{cut}");
        }
    }

    /// Returns an image of one pixel whose header claims another size and color type.
    fn bomb(width: u32, height: u32, bits: u8, color: u8) -> ImageSource {
        let mut bytes = encoded(1, 1, ImageFormat::Png).bytes;
        bytes[16..20].copy_from_slice(&width.to_be_bytes());
        bytes[20..24].copy_from_slice(&height.to_be_bytes());
        bytes[24..26].copy_from_slice(&[bits, color]);
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[12..29]);
        bytes[29..33].copy_from_slice(&hasher.finalize().to_be_bytes());
        ImageSource { name: String::new(), bytes }
    }

    /// A file of some bytes that claims to be an image of many gigabytes.
    #[test]
    fn an_image_that_claims_to_be_huge_is_refused_by_its_header() {
        let refused = |source: &ImageSource| prepare(source, &ANTHROPIC).unwrap_err().to_string();
        assert_eq!(
            refused(&bomb(19_000, 18_000, 8, 2)),
            "it has 19000x18000 pixels; at most 50 million are read"
        );
        let wide = refused(&bomb(u32::MAX / 2, 9, 8, 2));
        assert!(wide.contains("at most 50 million") || wide.contains("of memory"), "{wide}");
        // Eight bytes per pixel.
        assert_eq!(
            refused(&bomb(7_000, 7_000, 16, 6)),
            "decoding it takes more than 200 MB of memory"
        );
    }

    #[test]
    fn one_image_is_decoded_at_a_time_and_nothing_waits_for_it_after_the_end() {
        let permit = DecodePermit::acquire(&CancellationToken::new()).unwrap();
        let source = encoded(1, 1, ImageFormat::Png);
        let stop = CancellationToken::new();
        let waiting = thread::spawn({
            let (source, stop) = (source.clone(), stop.clone());
            move || source.prepare(&ANTHROPIC, &stop)
        });
        stop.cancel();
        assert!(matches!(waiting.join().unwrap(), Err(ImageError::Stopped)));
        let line = "[image a1.png, not shown: the time was over before it was decoded]";
        let late = |stop: &CancellationToken, most| {
            AttachedImages::prepare_all(vec![source.clone()], Some(&ANTHROPIC), stop, most).unwrap()
        };
        assert_eq!(late(&CancellationToken::new(), Some(Duration::ZERO)).lines, [line]);
        assert_eq!(late(&stop, None).lines, [line]);
        drop(permit);
        assert_eq!(late(&CancellationToken::new(), None).images.len(), 1);
    }

    #[test]
    fn an_image_is_turned_as_its_file_says() {
        let image = DynamicImage::new_rgb8(4_000, 100);
        let (bytes, media_type, size) =
            scale(image, Orientation::Rotate90, ImageType::Jpeg, &ANTHROPIC).unwrap();
        assert_eq!((media_type, size), (ImageType::Jpeg, (50, 2_000)));
        assert_eq!(image::load_from_memory(&bytes).unwrap().width(), 50);
    }

    #[test]
    fn a_model_without_images_gets_their_sizes_as_text() {
        let source = encoded(30, 20, ImageFormat::Png);
        let broken = ImageSource { name: "b.png".to_owned(), bytes: b"x".to_vec() };
        let stop = CancellationToken::new();
        let (attached, has_failed) = AttachedImages::prepare(&[source, broken], None, &stop);
        assert!(has_failed);
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
        let stop = CancellationToken::new();
        for (limits, most) in [(&ANTHROPIC, MAX_IMAGES), (&GROQ, 5)] {
            let (attached, _) = AttachedImages::prepare(&sources, Some(limits), &stop);
            assert_eq!((attached.images.len(), attached.lines.len()), (most, MAX_IMAGES + 1));
            let refused = AttachedImages::prepare_all(sources.clone(), Some(limits), &stop, None);
            assert!(matches!(refused.unwrap_err().1, ImageError::TooMany(n) if n == most));
        }
    }
}
