//! One codec chain with all of its arguments.

use std::borrow::Cow;
use std::fmt::Display;
use std::num::NonZeroU64;
use std::sync::{Arc, OnceLock};

use penstock_engine::{Error, Kind, Result};
use serde_json::Value;
use zarrs::array::{
    ArrayToBytesCodecTraits, BytesRepresentation, BytesToBytesCodecTraits, CodecChain, CodecError,
    CodecOptions, DataType, FillValue,
};
use zarrs::metadata::v3::MetadataV3;
use zarrs::plugin::ExtensionName;

use super::fletcher32::{self, Fletcher32};
use crate::dtype::StoredElement;
use crate::fill::{self, Fill};
use penstock_machines::memory::buffer::fill;

/// Encodes and decodes chunks, or sub-chunks, of one shape; see [`Coder::of_extents`].
#[derive(Clone)]
pub(crate) struct Coder {
    pub(super) chain: Arc<CodecChain>,
    pub(super) data_type: DataType,
    pub(super) fill_value: FillValue,
    pub(super) shape: Vec<NonZeroU64>,
    /// Elements whose bytes are put in order here; `None` where the codecs do it.
    pub(super) swapped: Option<StoredElement>,
}

impl Coder {
    /// The coder of chunks of these extents by a codec chain in Zarr's words, whose `bytes` codec
    /// has the byte order of the machine.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for a codec that is not known.
    pub(crate) fn of_chain(
        chain: &[Value],
        stored: &StoredElement,
        fill: &Fill,
        chunk: &[u64],
    ) -> Result<Self> {
        options(); // this call lets zarrs make its global state now
        let codecs = serde_json::from_value::<Vec<MetadataV3>>(Value::from(chain.to_vec()));
        let extents = chunk.iter().map(|&extent| NonZeroU64::new(extent));
        let extents: Option<Vec<NonZeroU64>> = extents.collect();
        let element = stored.element();
        let fill = stored.swapped(&fill.element(element)).into_owned();
        Ok(Self {
            chain: chain_of(&codecs.map_err(unknown)?)?,
            data_type: fill::data_type(element).ok_or_else(|| unknown(element))?,
            fill_value: FillValue::new(fill),
            swapped: Some(stored.clone()),
            shape: extents.ok_or_else(|| unknown("a chunk without elements"))?,
        })
    }

    /// The coder of chunks of other extents.
    pub(super) fn of_extents(&self, extents: &[u64]) -> Cow<'_, Self> {
        let own = self.shape.iter().map(|extent| extent.get());
        if own.eq(extents.iter().copied()) {
            return Cow::Borrowed(self);
        }
        // A chunk has an extent of 1 at least.
        let shape = extents
            .iter()
            .map(|&extent| NonZeroU64::new(extent).unwrap_or(NonZeroU64::MIN));
        Cow::Owned(Self {
            shape: shape.collect(),
            ..self.clone()
        })
    }

    /// Encodes elements for the disk. Elements that need no encoding are borrowed.
    pub(crate) fn encode<'a>(&self, data: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        let elements = match &self.swapped {
            Some(stored) => stored.swapped(data),
            None => Cow::Borrowed(data),
        };
        let chain = self.chain.as_ref();
        chain
            .encode(
                elements.into(),
                &self.shape,
                &self.data_type,
                &self.fill_value,
                &options(),
            )
            .map_err(|e| Error::new(kind(&e, Kind::Io), "encoding", e))
    }

    /// Fills the elements of a chunk that is not there.
    pub(super) fn fill(&self, data: &mut [u8]) {
        let mut element = self.fill_value.as_ne_bytes().to_vec();
        if let Some(stored) = &self.swapped {
            stored.swap(&mut element); // it is as in the file
        }
        fill(data, &element);
    }

    /// Decodes bytes from disk into elements.
    pub(crate) fn decode(&self, encoded: &[u8], data: &mut [u8]) -> Result<()> {
        let wrong = |e| Error::new(kind(&e, Kind::Damaged), "decoding", e);
        let bytes = Cow::Borrowed(encoded);
        let chain = self.chain.as_ref();
        let decoded = chain
            .decode(
                bytes,
                &self.shape,
                &self.data_type,
                &self.fill_value,
                &options(),
            )
            .map_err(wrong)?;
        let decoded = decoded.into_fixed().map_err(|e| wrong(e.into()))?;
        if decoded.len() != data.len() {
            let cause = format!("it decodes to {} bytes, not {}", decoded.len(), data.len());
            return Err(Error::new(Kind::Damaged, "decoding", cause));
        }
        data.copy_from_slice(&decoded);
        if let Some(stored) = &self.swapped {
            stored.swap(data);
        }
        Ok(())
    }

    /// The length of encoded elements, if it is fixed.
    pub(super) fn encoded_bytes(&self) -> Option<u64> {
        let chain = self.chain.as_ref();
        match chain.encoded_representation(&self.shape, &self.data_type, &self.fill_value) {
            Ok(BytesRepresentation::FixedSize(bytes)) => Some(bytes),
            _ => None,
        }
    }
}

fn unknown(cause: impl Display) -> Error {
    Error::new(Kind::Unsupported, "reading the codecs", cause)
}

/// The chain of these codecs.
///
/// # Errors
/// [`Kind::Unsupported`] for a codec that is not known.
pub(super) fn chain_of(codecs: &[MetadataV3]) -> Result<Arc<CodecChain>> {
    let chain = CodecChain::from_metadata(codecs).map_err(unknown)?;
    Ok(with_own_sums(&chain))
}

/// The same chain with [`Fletcher32`] in the place of the codec of that name.
pub(super) fn with_own_sums(chain: &CodecChain) -> Arc<CodecChain> {
    let codecs = chain.bytes_to_bytes_codecs().iter();
    let codecs = codecs.map(|codec| match codec.name_v3() {
        Some(name) if name == fletcher32::NAME => Arc::new(Fletcher32).into_dyn(),
        _ => codec.clone(),
    });
    Arc::new(CodecChain::new(
        chain.array_to_array_codecs().to_vec(),
        chain.array_to_bytes_codec().clone(),
        codecs.collect(),
    ))
}

fn kind(error: &CodecError, otherwise: Kind) -> Kind {
    match error {
        CodecError::UnsupportedDataType(..) | CodecError::UnsupportedDataTypeCodec(_) => {
            Kind::Unsupported
        }
        _ => otherwise,
    }
}

/// The options of codecs: one thread a codec, since a server's disks are its parallelism.
pub(super) fn options() -> CodecOptions {
    static OPTIONS: OnceLock<CodecOptions> = OnceLock::new();
    *OPTIONS.get_or_init(|| {
        // zarrs asks rayon for its number of threads here, which would start one for every CPU in
        // every rank. Asked from within a pool of one thread, rayon answers 1 and starts no more.
        let make = || {
            drop(zarrs::config::global_config());
            CodecOptions::default().with_concurrent_target(1)
        };
        match rayon::ThreadPoolBuilder::new().num_threads(1).build() {
            Ok(pool) => pool.install(make),
            Err(_) => make(),
        }
    })
}
