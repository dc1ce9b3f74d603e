//! What the request of an operation consists of over HTTP: a query, a body, an id in the path, or an id with one of the others.

use annie_core::{
    ids::{ConversationId, IdError, OperationId, TaskId},
    ports::Before,
};
use axum::extract::{FromRequest, FromRequestParts, Request};
use serde::{Deserialize, de::DeserializeOwned};
use std::str::FromStr;
use utoipa::{
    IntoParams, PartialSchema, ToSchema,
    openapi::{
        ContentBuilder, RefOr, Required,
        path::{OperationBuilder, ParameterBuilder, ParameterIn},
        request_body::RequestBodyBuilder,
        schema::Schema,
    },
};

use super::row::{About, JSON, Schemas, reference};
use crate::{
    api::{AppState, page},
    error::ApiError,
    http::{
        extract::{Args, Body, Id, Name, page_of},
        schema,
    },
};

/// The request of an operation.
pub(crate) trait Input: Sized + Send + 'static {
    /// Reads the request.
    fn of_http(request: Request, state: &AppState) -> impl Future<Output = Result<Self, ApiError>> + Send;

    /// Adds the parameters and the body to the description.
    fn describe(about: &About, to: OperationBuilder, schemas: &mut Schemas) -> OperationBuilder;
}

impl Input for () {
    async fn of_http(_: Request, _: &AppState) -> Result<Self, ApiError> {
        Ok(())
    }

    fn describe(_: &About, to: OperationBuilder, _: &mut Schemas) -> OperationBuilder {
        to
    }
}

impl<T: DeserializeOwned + IntoParams + Send + 'static> Input for Args<T> {
    async fn of_http(request: Request, state: &AppState) -> Result<Self, ApiError> {
        let (mut parts, _) = request.into_parts();
        Self::from_request_parts(&mut parts, state).await
    }

    fn describe(_: &About, to: OperationBuilder, _: &mut Schemas) -> OperationBuilder {
        to.parameters(Some(T::into_params(|| Some(ParameterIn::Query))))
    }
}

impl<T: DeserializeOwned + ToSchema + Send + 'static> Input for Body<T> {
    async fn of_http(request: Request, state: &AppState) -> Result<Self, ApiError> {
        Self::from_request(request, state).await
    }

    fn describe(_: &About, to: OperationBuilder, schemas: &mut Schemas) -> OperationBuilder {
        let content = ContentBuilder::new().schema(Some(reference::<T>(schemas))).build();
        let body = RequestBodyBuilder::new().content(JSON, content).required(Some(Required::True));
        to.request_body(Some(body.build()))
    }
}

/// The query of a list whose rows are open at first, newest first.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OpenPage {
    /// Only open ones: tasks that have not ended, operations whose result is still awaited.
    #[serde(default)]
    open: bool,
    /// The `next` of an earlier page; this page continues after it.
    #[param(pattern = "^([0-9]{1,18}_[0-9a-f]{32})?$")]
    next: Option<String>,
    /// The maximum number of rows; 50 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 500)]
    limit: Option<String>,
}

impl OpenPage {
    /// The query of a gRPC message.
    pub(super) fn of_rpc(open: bool, limit: u32, next: String) -> Args<Self> {
        Args(Self { open, next: Some(next), limit: page::text_of(limit) })
    }

    /// Whether only open rows are listed, the start of the page, and its maximum number of rows.
    pub(super) fn parts(&self) -> Result<(bool, Before, u32), ApiError> {
        let (before, limit) = page_of(self.next.as_deref(), self.limit.as_deref())?;
        Ok((self.open, before, limit))
    }
}

/// An id that a path may contain.
pub(crate) trait PathId: FromStr<Err = IdError> + Send + 'static {
    /// Its description.
    type Schema: ToSchema;
}

impl PathId for TaskId {
    type Schema = schema::TaskId;
}

impl PathId for ConversationId {
    type Schema = schema::ConversationId;
}

impl PathId for OperationId {
    type Schema = schema::OperationId;
}

impl<T: PathId> Input for Id<T> {
    async fn of_http(request: Request, state: &AppState) -> Result<Self, ApiError> {
        let (mut parts, _) = request.into_parts();
        Self::from_request_parts(&mut parts, state).await
    }

    fn describe(about: &About, to: OperationBuilder, schemas: &mut Schemas) -> OperationBuilder {
        let schema = reference::<T::Schema>(schemas);
        path_parameter(about, to, schema.into())
    }
}

impl Input for Name {
    async fn of_http(request: Request, state: &AppState) -> Result<Self, ApiError> {
        let (mut parts, _) = request.into_parts();
        Self::from_request_parts(&mut parts, state).await
    }

    fn describe(about: &About, to: OperationBuilder, _: &mut Schemas) -> OperationBuilder {
        path_parameter(about, to, String::schema())
    }
}

/// An id in the path, and the rest of the request.
impl<T: PathId, R: Input> Input for (Id<T>, R) {
    async fn of_http(request: Request, state: &AppState) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        let id = Id::from_request_parts(&mut parts, state).await?;
        let rest = R::of_http(Request::from_parts(parts, body), state).await?;
        Ok((id, rest))
    }

    fn describe(about: &About, to: OperationBuilder, schemas: &mut Schemas) -> OperationBuilder {
        let to = Id::<T>::describe(about, to, schemas);
        R::describe(about, to, schemas)
    }
}

/// A name in the path, and the rest of the request.
impl<R: Input> Input for (Name, R) {
    async fn of_http(request: Request, state: &AppState) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        let name = Name::from_request_parts(&mut parts, state).await?;
        let rest = R::of_http(Request::from_parts(parts, body), state).await?;
        Ok((name, rest))
    }

    fn describe(about: &About, to: OperationBuilder, schemas: &mut Schemas) -> OperationBuilder {
        R::describe(about, Name::describe(about, to, schemas), schemas)
    }
}

fn path_parameter(about: &About, to: OperationBuilder, schema: RefOr<Schema>) -> OperationBuilder {
    let name = about.path.split(['{', '}']).nth(1).unwrap_or_default();
    let parameter = ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(about.id)
        .schema(Some(schema));
    to.parameter(parameter.build())
}
