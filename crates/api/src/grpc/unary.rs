//! A unary method of the table of operations: the typed message becomes the operation's request, and its result the reply.

use axum::{body::Body, extract::Request, response::Response};
use prost::Message;
use tonic::{Status, server::Grpc};
use tonic_prost::ProstCodec;

use super::{caller, refused};
use crate::{
    api::AppState,
    error::ApiError,
    ops::{Call, Run},
};

/// Answers a request.
pub(crate) async fn answer<I, O, Q, R>(
    run: Run<I, O>,
    decode: impl Fn(Q) -> Result<I, ApiError> + Copy + Send + 'static,
    encode: impl Fn(O) -> R + Copy + Send + 'static,
    state: AppState,
    request: Request,
) -> Response
where
    I: Send + 'static,
    O: Send + 'static,
    Q: Message + Default + 'static,
    R: Message + 'static,
{
    let (bytes_in_max, bytes_out_max) = (state.limits.grpc_request_bytes_max, state.limits.grpc_response_bytes_max);
    let service = tower::service_fn(move |request: tonic::Request<Q>| {
        let (run, state) = (run.clone(), state.clone());
        async move {
            let caller = caller(&request)?;
            let input = decode(request.into_inner()).map_err(refused)?;
            let result = run(Call { state, caller, channel: "grpc" }, input).await.map_err(refused)?;
            Ok::<_, Status>(tonic::Response::new(encode(result)))
        }
    });
    let mut grpc = Grpc::new(ProstCodec::<R, Q>::default())
        .max_decoding_message_size(bytes_in_max)
        .max_encoding_message_size(bytes_out_max);
    grpc.unary(service, request).await.map(Body::new)
}
