//! `annie.v1.DeadLetters`: what failed in every way that was tried.

use annie_actors::{ManyDone, ManyLetters};
use annie_core::{letter::LetterState, ports::LetterRow, time::Micros};
use tonic::{Request, Response, Status};

use super::{Door, caller, convert, refused, v1};
use crate::{
    auth::Caller,
    door::{LetterWish, page, scope_of},
    error::Fault,
};

#[tonic::async_trait]
impl v1::dead_letters_server::DeadLetters for Door {
    async fn list(
        &self,
        request: Request<v1::ListLettersRequest>,
    ) -> Result<Response<v1::ListLettersResponse>, Status> {
        let caller = caller(&request)?;
        let wanted = request.into_inner();
        let limit = page::ROWS.of_number(wanted.limit).map_err(refused)?;
        let before = convert::before(&wanted.next)?;
        let scope = scope_of(&caller, user_in(&wanted.user)).map_err(refused)?;
        let filter = LetterWish {
            state: state_from(wanted.state)?,
            error: Some(wanted.error),
            priority: convert::priority(wanted.priority)?,
            failed_from: wanted.failed_from_us.map(Micros),
            failed_before: wanted.failed_before_us.map(Micros),
        }
        .filter();
        let kernel = &self.state.kernel;
        let total = kernel.count_letters(scope.clone(), filter.clone()).await.map_err(refused)?;
        let rows = kernel.letters(scope, filter, before, limit).await.map_err(refused)?;
        let next = page::next_of(&rows, limit, LetterRow::place).unwrap_or_default();
        let dead_letters = rows.into_iter().map(letter).collect();
        Ok(Response::new(v1::ListLettersResponse { dead_letters, next, total }))
    }

    async fn get(&self, request: Request<v1::GetLetterRequest>) -> Result<Response<v1::WholeLetter>, Status> {
        let caller = caller(&request)?;
        let id = convert::id("task_id", &request.into_inner().task_id)?;
        let found = self.state.kernel.letter(caller.scope(), id).await.map_err(refused)?;
        Ok(Response::new(v1::WholeLetter {
            letter: Some(letter(found.row)),
            text: found.text,
            before: found.before.iter().map(ToString::to_string).collect(),
            events: found.events.iter().map(convert::event).collect(),
        }))
    }

    async fn retry(&self, request: Request<v1::RetryLetterRequest>) -> Result<Response<v1::SubmitResponse>, Status> {
        let caller = caller(&request)?;
        let id = convert::id("task_id", &request.into_inner().task_id)?;
        let submitted = self.state.kernel.retry_letter(caller.scope(), id, &caller.name()).await.map_err(refused)?;
        Ok(Response::new(convert::submitted(submitted)))
    }

    async fn discard(
        &self,
        request: Request<v1::DiscardLetterRequest>,
    ) -> Result<Response<v1::DiscardLetterResponse>, Status> {
        let caller = caller(&request)?;
        let id = convert::id("task_id", &request.into_inner().task_id)?;
        let discarded = self.state.kernel.discard_letter(caller.scope(), id, &caller.name()).await.map_err(refused)?;
        Ok(Response::new(v1::DiscardLetterResponse { discarded }))
    }

    async fn retry_many(
        &self,
        request: Request<v1::ManyLettersRequest>,
    ) -> Result<Response<v1::ManyLettersResponse>, Status> {
        let caller = caller(&request)?;
        let wish = many(&caller, request.into_inner())?;
        let done = self.state.kernel.retry_letters(wish, &caller.name()).await.map_err(refused)?;
        Ok(Response::new(many_done(done)))
    }

    async fn discard_many(
        &self,
        request: Request<v1::ManyLettersRequest>,
    ) -> Result<Response<v1::ManyLettersResponse>, Status> {
        let caller = caller(&request)?;
        let wish = many(&caller, request.into_inner())?;
        let done = self.state.kernel.discard_letters(wish, &caller.name()).await.map_err(refused)?;
        Ok(Response::new(many_done(done)))
    }
}

/// A user that was given.
fn user_in(text: &str) -> Option<&str> {
    Some(text).filter(|user| !user.is_empty())
}

fn many(caller: &Caller, wanted: v1::ManyLettersRequest) -> Result<ManyLetters, Status> {
    let filter = LetterWish {
        state: None,
        error: Some(wanted.error),
        priority: convert::priority(wanted.priority)?,
        failed_from: wanted.failed_from_us.map(Micros),
        failed_before: wanted.failed_before_us.map(Micros),
    }
    .filter();
    Ok(ManyLetters {
        scope: scope_of(caller, user_in(&wanted.user)).map_err(refused)?,
        filter,
        limit: page::BULK.of_number(wanted.limit).map_err(refused)?,
        is_confirmed: wanted.confirmed,
    })
}

fn many_done(many: ManyDone) -> v1::ManyLettersResponse {
    let ManyDone { matching, done, left, stopped, tasks } = many;
    let task_ids = tasks.iter().map(ToString::to_string).collect();
    v1::ManyLettersResponse { matching, done, left, stopped: stopped.unwrap_or_default(), task_ids }
}

fn state_from(number: i32) -> Result<Option<LetterState>, Status> {
    Ok(match v1::LetterState::try_from(number) {
        Ok(v1::LetterState::Unspecified) => None,
        Ok(v1::LetterState::Waiting) => Some(LetterState::Waiting),
        Ok(v1::LetterState::Retried) => Some(LetterState::Retried),
        Ok(v1::LetterState::Discarded) => Some(LetterState::Discarded),
        Ok(v1::LetterState::Archived) => Some(LetterState::Archived),
        Err(_) => return Err(refused(Fault::invalid(format!("there is no state {number}")).at("state"))),
    })
}

const fn state_of(state: LetterState) -> v1::LetterState {
    match state {
        LetterState::Waiting => v1::LetterState::Waiting,
        LetterState::Retried => v1::LetterState::Retried,
        LetterState::Discarded => v1::LetterState::Discarded,
        LetterState::Archived => v1::LetterState::Archived,
    }
}

fn letter(row: LetterRow) -> v1::DeadLetter {
    v1::DeadLetter {
        task_id: row.task.to_string(),
        conversation_id: row.conversation.to_string(),
        title: row.title,
        priority: convert::priority_of(row.priority).into(),
        state: state_of(row.state).into(),
        error: row.code,
        answer: row.text,
        detail: row.detail,
        tried: row.letter.tried,
        since_us: row.letter.since.0,
        retry_at_us: row.letter.retry_at.map(|at| at.0),
        retried_by: row.retried_by.map(|task| task.to_string()).unwrap_or_default(),
        failed_at_us: row.failed_at.0,
        changed_at_us: row.changed_at.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_survive_the_way_there_and_back() {
        for state in [LetterState::Waiting, LetterState::Retried, LetterState::Discarded, LetterState::Archived] {
            assert_eq!(state_from(state_of(state).into()).unwrap(), Some(state));
        }
        assert_eq!(state_from(0).unwrap(), None);
        assert_eq!(state_from(9).unwrap_err().code(), tonic::Code::InvalidArgument);
    }
}
