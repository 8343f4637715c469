//! The checksum of Fletcher, as HDF5 puts it behind a chunk.
//!
//! The crate `zarrs` has this codec, too, but leaves out the last byte where the number of bytes is
//! odd, as that of compressed bytes often is.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use zarrs::array::codec::api::{PartialDecoderCapability, PartialEncoderCapability};
use zarrs::array::{
    ArrayBytesRaw, BytesRepresentation, BytesToBytesCodecTraits, CodecError, CodecMetadataOptions,
    CodecOptions, CodecTraits, RecommendedConcurrency,
};
use zarrs::metadata::Configuration;
use zarrs::plugin::{ExtensionName, ZarrVersion};

/// The name of the codec in Zarr's metadata.
pub(super) const NAME: &str = "numcodecs.fletcher32";

/// The bytes of a sum.
const SUM_BYTES: usize = 4;
/// The pairs of bytes that two sums of 32 bits take before they overflow.
const PAIRS_MAX: usize = 360;

/// The codec.
#[derive(Debug)]
pub(super) struct Fletcher32;

/// The sum: two sums of 16 bits, of pairs of bytes with the most significant first.
fn sum(data: &[u8]) -> u32 {
    let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let (pairs, odd) = data.as_chunks::<2>();
    let (mut low, mut high) = (0u32, 0u32);
    for pairs in pairs.chunks(PAIRS_MAX) {
        for &pair in pairs {
            low += u32::from(u16::from_be_bytes(pair));
            high += low;
        }
        (low, high) = (fold(low), fold(high));
    }
    if let [last] = odd {
        low += u32::from(*last) << 8;
        high += low;
        (low, high) = (fold(low), fold(high));
    }
    (fold(high) << 16) | fold(low)
}

impl ExtensionName for Fletcher32 {
    fn name(&self, _: ZarrVersion) -> Option<Cow<'static, str>> {
        Some(NAME.into())
    }
}

impl CodecTraits for Fletcher32 {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn configuration(&self, _: ZarrVersion, _: &CodecMetadataOptions) -> Option<Configuration> {
        Some(Configuration::default())
    }

    fn partial_decoder_capability(&self) -> PartialDecoderCapability {
        PartialDecoderCapability {
            partial_read: false,
            partial_decode: false,
        }
    }

    fn partial_encoder_capability(&self) -> PartialEncoderCapability {
        PartialEncoderCapability {
            partial_encode: false,
        }
    }
}

impl BytesToBytesCodecTraits for Fletcher32 {
    fn into_dyn(self: Arc<Self>) -> Arc<dyn BytesToBytesCodecTraits> {
        self
    }

    fn recommended_concurrency(
        &self,
        _: &BytesRepresentation,
    ) -> Result<RecommendedConcurrency, CodecError> {
        Ok(RecommendedConcurrency::new_maximum(1))
    }

    fn encoded_representation(&self, decoded: &BytesRepresentation) -> BytesRepresentation {
        let more = |bytes: &u64| bytes + SUM_BYTES as u64;
        match decoded {
            BytesRepresentation::FixedSize(bytes) => BytesRepresentation::FixedSize(more(bytes)),
            BytesRepresentation::BoundedSize(bytes) => {
                BytesRepresentation::BoundedSize(more(bytes))
            }
            BytesRepresentation::UnboundedSize => BytesRepresentation::UnboundedSize,
        }
    }

    fn encode<'a>(
        &self,
        decoded: ArrayBytesRaw<'a>,
        _: &CodecOptions,
    ) -> Result<ArrayBytesRaw<'a>, CodecError> {
        let sum = sum(&decoded).to_le_bytes();
        let mut encoded = decoded.into_owned();
        encoded.extend(sum);
        Ok(encoded.into())
    }

    fn decode<'a>(
        &self,
        encoded: ArrayBytesRaw<'a>,
        _: &BytesRepresentation,
        _: &CodecOptions,
    ) -> Result<ArrayBytesRaw<'a>, CodecError> {
        match encoded.split_last_chunk::<SUM_BYTES>() {
            Some((decoded, stored)) if sum(decoded) == u32::from_le_bytes(*stored) => {
                let bytes = decoded.len();
                let mut decoded = encoded.into_owned();
                decoded.truncate(bytes);
                Ok(decoded.into())
            }
            _ => Err(CodecError::InvalidChecksum),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_hdf5_library() {
        // From chunks of bytes that h5py has written with `fletcher32=True`.
        let count = |bytes: usize| (0..bytes).map(|at| (at % 256) as u8).collect::<Vec<_>>();
        for (data, known) in [
            (vec![1], 0x0100_0100),
            (vec![1, 2], 0x0102_0102),
            (vec![1, 2, 3], 0x0504_0402),
            (count(1000), 0x0d68_9183),
            (count(1001), 0x86ec_7984),
        ] {
            assert_eq!(sum(&data), known, "{} bytes", data.len());
        }
    }

    #[test]
    fn a_changed_bit_is_noticed() {
        let (codec, options) = (Fletcher32, CodecOptions::default());
        let size = BytesRepresentation::UnboundedSize;
        for bytes in [0, 1, 2, 3, 719, 720, 721, 5001] {
            let data: Vec<u8> = (0..bytes).map(|at: usize| (at * 7 % 251) as u8).collect();
            let encoded = codec.encode(data.clone().into(), &options).unwrap();
            assert_eq!(encoded.len(), bytes + SUM_BYTES);
            let decoded = codec.decode(encoded.clone(), &size, &options).unwrap();
            assert!(*decoded == *data);
            for at in (0..encoded.len()).step_by(97) {
                let mut wrong = encoded.to_vec();
                wrong[at] ^= 4;
                assert!(codec.decode(wrong.into(), &size, &options).is_err());
            }
        }
        assert!(codec.decode(vec![1, 2].into(), &size, &options).is_err());
    }
}
