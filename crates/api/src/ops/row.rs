//! One row of the table, and what follows from it at each front end.

use std::{iter, sync::Arc};

use axum::{
    Json,
    extract::{FromRequestParts, Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{MethodFilter, on},
};
use futures_util::future::BoxFuture;
use prost::Message;
use serde::Serialize;
use utoipa::{
    ToSchema,
    openapi::{
        ContentBuilder, HttpMethod, Ref, RefOr, ResponseBuilder,
        path::{OperationBuilder, Paths},
        schema::Schema,
    },
};
use utoipa_axum::router::UtoipaMethodRouter;

use super::Input;
use crate::{
    api::AppState,
    auth::{Caller, Need, Rule},
    error::ApiError,
    grpc::unary,
    http::problem::Problem,
};

/// The content type of requests and replies.
pub(crate) const JSON: &str = "application/json";

/// The schemas that a description refers to, by name.
pub(crate) type Schemas = Vec<(String, RefOr<Schema>)>;

/// The server and the caller of an operation.
pub(crate) struct Call {
    pub state: AppState,
    pub caller: Caller,
    /// The front end, which is the channel of what the operation starts: `http` or `grpc`.
    pub channel: &'static str,
}

/// The handler of an operation.
pub(crate) type Run<I, O> = Arc<dyn Fn(Call, I) -> BoxFuture<'static, Result<O, ApiError>> + Send + Sync>;
type Http = Arc<dyn Fn(AppState, Request) -> BoxFuture<'static, Result<Response, ApiError>> + Send + Sync>;
/// The answer to a request for a gRPC method.
pub(crate) type Rpc = Box<dyn Fn(AppState, Request) -> BoxFuture<'static, Response> + Send + Sync>;
type Describe = fn(&About, &mut Schemas) -> OperationBuilder;

/// The HTTP method of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// The request is in the path and the query.
    Get,
    /// The request is in the path and the body.
    Post,
    /// The request is in the path and the query.
    Delete,
}

/// The name, the route, the scope and the texts of an operation.
pub(crate) struct About {
    pub verb: Verb,
    pub path: &'static str,
    pub need: Need,
    pub name: &'static str,
    pub tag: &'static str,
    pub summary: &'static str,
    /// The description of the id in the path.
    pub id: Option<&'static str>,
    /// The command of the command line, such as `tasks list`; empty if there is none.
    pub cli: &'static str,
    /// The meaning of a reply without a body.
    pub done: &'static str,
}

/// A row whose request and result still have their types.
pub(crate) struct Row<I, O> {
    about: About,
    run: Run<I, O>,
    http: Http,
    describe: Describe,
}

/// An operation with a result, from which `json` makes the reply of HTTP.
pub(crate) fn route<I, O, J, F>(
    verb: Verb,
    path: &'static str,
    need: Need,
    run: impl Fn(Call, I) -> F + Send + Sync + 'static,
    json: impl Fn(O) -> J + Copy + Send + Sync + 'static,
) -> Row<I, O>
where
    I: Input,
    O: Send + 'static,
    J: Serialize + ToSchema,
    F: Future<Output = Result<O, ApiError>> + Send + 'static,
{
    let respond = move |result| Json(json(result)).into_response();
    row(About::new(verb, path, need), run, respond, reply::<I, J>)
}

/// An operation that changes something and has no result. `done` says over HTTP what the status 204 means.
pub(crate) fn command<I, F>(
    path: &'static str,
    need: Need,
    run: impl Fn(Call, I) -> F + Send + Sync + 'static,
    done: &'static str,
) -> Row<I, ()>
where
    I: Input,
    F: Future<Output = Result<(), ApiError>> + Send + 'static,
{
    let about = About { done, ..About::new(Verb::Post, path, need) };
    row(about, run, |()| StatusCode::NO_CONTENT.into_response(), no_reply::<I>)
}

fn row<I, O, F>(
    about: About,
    run: impl Fn(Call, I) -> F + Send + Sync + 'static,
    respond: impl Fn(O) -> Response + Copy + Send + Sync + 'static,
    describe: Describe,
) -> Row<I, O>
where
    I: Input,
    O: Send + 'static,
    F: Future<Output = Result<O, ApiError>> + Send + 'static,
{
    let run: Run<I, O> = Arc::new(move |call, input| Box::pin(run(call, input)));
    let handler = run.clone();
    let http: Http = Arc::new(move |state, request| {
        let run = handler.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let caller = Caller::from_request_parts(&mut parts, &state).await?;
            let input = I::of_http(Request::from_parts(parts, body), &state).await?;
            run(Call { state, caller, channel: "http" }, input).await.map(respond)
        })
    });
    Row { about, run, http, describe }
}

impl About {
    const fn new(verb: Verb, path: &'static str, need: Need) -> Self {
        Self { verb, path, need, name: "", tag: "", summary: "", cli: "", id: None, done: "" }
    }
}

impl<I: Input, O: Send + 'static> Row<I, O> {
    /// Sets the name, the section of the description, the text that describes the operation, and the command of the command
    /// line, which is empty if there is none.
    pub fn about(self, name: &'static str, tag: &'static str, summary: &'static str, cli: &'static str) -> Self {
        Self { about: About { name, tag, summary, cli, ..self.about }, ..self }
    }

    /// Describes the id in the path.
    pub fn id(self, text: &'static str) -> Self {
        Self { about: About { id: Some(text), ..self.about }, ..self }
    }

    /// Completes an operation that has no gRPC method.
    pub fn http_only(self) -> Operation {
        let Self { about, http, describe, .. } = self;
        Operation { about, http, describe, rpc: None }
    }

    /// Completes an operation with its gRPC method: the request is made from the message, and the reply from the result.
    pub fn rpc<Q, R>(
        self,
        method: &'static str,
        decode: impl Fn(Q) -> Result<I, ApiError> + Copy + Send + Sync + 'static,
        encode: impl Fn(O) -> R + Copy + Send + Sync + 'static,
    ) -> Operation
    where
        Q: Message + Default + 'static,
        R: Message + 'static,
    {
        let Self { about, run, http, describe } = self;
        let rpc: Rpc =
            Box::new(move |state, request| Box::pin(unary::answer(run.clone(), decode, encode, state, request)));
        Operation { about, http, describe, rpc: Some((method, rpc)) }
    }
}

/// An operation of the table.
pub(crate) struct Operation {
    pub about: About,
    http: Http,
    describe: Describe,
    rpc: Option<(&'static str, Rpc)>,
}

impl Operation {
    /// The gRPC method, such as `/annie.v1.Jobs/List`.
    pub fn method(&self) -> Option<&'static str> {
        self.rpc.as_ref().map(|(method, _)| *method)
    }

    /// The access rules of the operation's routes.
    pub fn rules(&self) -> impl Iterator<Item = Rule> + use<> {
        let About { verb, path, need, .. } = self.about;
        let verb = match verb {
            Verb::Get => "GET",
            Verb::Post => "POST",
            Verb::Delete => "DELETE",
        };
        iter::once((verb, path, need)).chain(self.method().map(|method| ("RPC", method, need)))
    }

    /// The HTTP route with its description.
    pub fn route(&self) -> UtoipaMethodRouter<AppState> {
        let (filter, method) = match self.about.verb {
            Verb::Get => (MethodFilter::GET, HttpMethod::Get),
            Verb::Post => (MethodFilter::POST, HttpMethod::Post),
            Verb::Delete => (MethodFilter::DELETE, HttpMethod::Delete),
        };
        let (mut schemas, mut paths) = (Schemas::new(), Paths::new());
        let problem = ContentBuilder::new().schema(Some(reference::<Problem>(&mut schemas))).build();
        let problem = ResponseBuilder::new().description("A problem").content(JSON, problem);
        let described = (self.describe)(&self.about, &mut schemas)
            .response("default", problem)
            .operation_id(Some(self.about.name))
            .summary(Some(self.about.summary))
            .tag(self.about.tag);
        paths.add_path_operation(self.about.path, vec![method], described.build());
        let http = self.http.clone();
        (schemas, paths, on(filter, move |State(state): State<AppState>, request: Request| http(state, request)))
    }

    /// The adapter of this gRPC method; nothing if it is the method of another operation.
    pub fn adapter(&self, path: &str) -> Option<&Rpc> {
        self.rpc.as_ref().filter(|(method, _)| *method == path).map(|(_, rpc)| rpc)
    }
}

/// A reference to a schema, which is added to the list with those that it refers to.
pub(crate) fn reference<T: ToSchema>(schemas: &mut Schemas) -> Ref {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
    Ref::from_schema_name(T::name())
}

/// The description of an operation whose reply has a schema.
fn reply<I: Input, J: ToSchema>(about: &About, schemas: &mut Schemas) -> OperationBuilder {
    let content = ContentBuilder::new().schema(Some(reference::<J>(schemas))).build();
    let response = ResponseBuilder::new().content(JSON, content);
    I::describe(about, OperationBuilder::new(), schemas).response("200", response)
}

/// The description of an operation that has no result.
fn no_reply<I: Input>(about: &About, schemas: &mut Schemas) -> OperationBuilder {
    let response = ResponseBuilder::new().description(about.done);
    I::describe(about, OperationBuilder::new(), schemas).response("204", response)
}
