//! `annie.v1.DeadLetters`: what failed in every way that was tried.

use annie_core::{letter::LetterState, ports::LetterRow};
use tonic::{Request, Response, Status};

use super::{Door, caller, convert, refused, v1};
use crate::{door::page_limit, error::Fault};

#[tonic::async_trait]
impl v1::dead_letters_server::DeadLetters for Door {
    async fn list(
        &self,
        request: Request<v1::ListLettersRequest>,
    ) -> Result<Response<v1::ListLettersResponse>, Status> {
        let caller = caller(&request)?;
        let wanted = request.into_inner();
        let limit = page_limit(wanted.limit, 50, annie_actors::PAGE_MAX);
        let (state, before) = (state_from(wanted.state)?, convert::before(wanted.before_us));
        let rows = self.state.kernel.letters(caller.scope(), state, before, limit).await.map_err(refused)?;
        Ok(Response::new(v1::ListLettersResponse { dead_letters: rows.into_iter().map(letter).collect() }))
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
