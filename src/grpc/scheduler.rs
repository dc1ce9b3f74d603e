//! `annie.v1.Scheduler`: who waits and why, and the voice gate.

use tonic::{Request, Response, Status};

use super::{Door, refused, v1};
use crate::door;

#[tonic::async_trait]
impl v1::scheduler_server::Scheduler for Door {
    async fn queue(&self, _: Request<v1::QueueRequest>) -> Result<Response<v1::QueueResponse>, Status> {
        let queue = self.state.kernel.queue().await.map_err(refused)?;
        Ok(Response::new(v1::QueueResponse { queue_json: queue.to_string() }))
    }

    async fn hold_gate(&self, request: Request<v1::HoldGateRequest>) -> Result<Response<v1::HoldGateResponse>, Status> {
        let wanted = request.into_inner();
        let held = door::hold_gate(&self.state, &wanted.backend, &wanted.holder, wanted.ttl_ms).await;
        let held = held.map_err(refused)?;
        Ok(Response::new(v1::HoldGateResponse { epoch: held.epoch, until_us: held.until.0 }))
    }

    async fn release_gate(
        &self,
        request: Request<v1::ReleaseGateRequest>,
    ) -> Result<Response<v1::ReleaseGateResponse>, Status> {
        let wanted = request.into_inner();
        let released = door::release_gate(&self.state, &wanted.backend, &wanted.holder).await.map_err(refused)?;
        Ok(Response::new(v1::ReleaseGateResponse { released }))
    }
}
