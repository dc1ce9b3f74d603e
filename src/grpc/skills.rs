//! `annie.v1.Skills`: the skills that agents can use.

use tonic::{Request, Response, Status};

use super::{Service, convert, refused, v1};
use crate::api::unknown_skill;

#[tonic::async_trait]
impl v1::skills_server::Skills for Service {
    async fn list(&self, request: Request<v1::ListSkillsRequest>) -> Result<Response<v1::ListSkillsResponse>, Status> {
        let set = self.state.kernel.catalog().skills();
        let query = request.into_inner().query;
        let skills = if query.is_empty() {
            set.iter().map(|s| convert::skill(s, false)).collect()
        } else {
            set.search(&query).into_iter().map(|s| convert::skill(s, false)).collect()
        };
        Ok(Response::new(v1::ListSkillsResponse { skills, version: set.version() }))
    }

    async fn get(&self, request: Request<v1::GetSkillRequest>) -> Result<Response<v1::Skill>, Status> {
        let set = self.state.kernel.catalog().skills();
        let name = request.into_inner().name;
        let spec = set.get(&name).ok_or_else(|| refused(unknown_skill(&set.near(&name))))?;
        Ok(Response::new(convert::skill(spec, true)))
    }
}
