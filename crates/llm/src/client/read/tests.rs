//! Tests of the input of the event parser.

use std::sync::atomic::AtomicU64;

use annie_core::ports::Entropy;
use futures_util::TryStreamExt;

use super::*;
use crate::config::ModelConfig;

struct Counting(AtomicU64);

impl Entropy for Counting {
    fn next_u64(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

#[tokio::test]
async fn reader_splits_large_packet_into_small_slices_for_parser() {
    let config = ModelConfig { base_url: "http://127.0.0.1:1/v1".into(), model: "m".into(), ..ModelConfig::default() };
    let model = OpenAiModel::new(config, Arc::new(Counting(AtomicU64::new(0)))).unwrap();
    let packet = "data: {}\n\n".repeat(40_000).into_bytes();
    let response = Response::from(axum::http::Response::new(packet.clone()));
    let by = Instant::now() + Duration::from_secs(600);
    let slices: Vec<Bytes> = guarded(&model, Vec::new(), response, by, Arc::default())
        .map_err(|failure| failure.error)
        .try_collect()
        .await
        .unwrap();
    // The parser moves the rest of a slice with every line in it.
    assert!(slices.iter().all(|slice| slice.len() <= SLICE_BYTES_MAX), "{:?}", slices.iter().map(Bytes::len).max());
    assert_eq!(slices.concat(), packet);
}
