//! One codec chain with all of its arguments.

use std::borrow::Cow;
use std::num::NonZeroU64;
use std::sync::{Arc, OnceLock};

use penstock_engine::{Error, Kind, Result};
use zarrs::array::{
    ArrayToBytesCodecTraits, BytesRepresentation, CodecChain, CodecError, CodecOptions, DataType,
    FillValue,
};

/// Encodes and decodes chunks, or sub-chunks, of one shape.
#[derive(Clone)]
pub(super) struct Coder {
    pub(super) chain: Arc<CodecChain>,
    pub(super) data_type: DataType,
    pub(super) fill_value: FillValue,
    pub(super) shape: Vec<NonZeroU64>,
}

impl Coder {
    /// Encodes elements for the disk. Elements that need no encoding are borrowed.
    pub(super) fn encode<'a>(&self, data: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        let elements = Cow::Borrowed(data).into();
        let chain = self.chain.as_ref();
        chain
            .encode(
                elements,
                &self.shape,
                &self.data_type,
                &self.fill_value,
                &options(),
            )
            .map_err(|e| Error::new(kind(&e, Kind::Io), "encoding", e))
    }

    /// Decodes bytes from disk into elements.
    pub(super) fn decode(&self, encoded: &[u8], data: &mut [u8]) -> Result<()> {
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
