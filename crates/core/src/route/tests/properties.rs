//! Properties of routing for arbitrary pools and requests: no panics, and no request reaches a backend that may not run it.

use proptest::prelude::*;

use super::*;

fn backend(name: &str, capabilities: Vec<String>, is_local: bool, context: Option<u32>) -> BackendFacts {
    BackendFacts {
        name: name.to_owned(),
        capabilities: capabilities.into_iter().collect(),
        privacy: if is_local { Privacy::Local } else { Privacy::Cloud },
        context_tokens_max: context,
        called: vec![format!("{name}y")],
        ..BackendFacts::default()
    }
}

fn pools() -> impl Strategy<Value = Vec<BackendFacts>> {
    let words = prop::collection::vec(prop::sample::select(vec!["git", "voice", "files", "shell", "web"]), 0..4);
    let facts = (words, any::<bool>(), prop::option::of(1_u32..10_000));
    prop::collection::vec(facts, 1..5).prop_map(|all| {
        let of = |(n, (words, is_local, context)): (usize, (Vec<&str>, bool, Option<u32>))| {
            backend(["ann", "bob", "cid", "dan"][n], words.into_iter().map(str::to_owned).collect(), is_local, context)
        };
        all.into_iter().enumerate().map(of).collect()
    })
}

fn texts() -> impl Strategy<Value = String> {
    let known =
        vec!["git status", "remember x", "https://youtu.be/x", "bobby, hello", "anny: run it", "edit file x", "hi"];
    prop_oneof![4 => prop::sample::select(known).prop_map(str::to_owned), 1 => "\\PC{0,40}"]
}

proptest! {
    #[test]
    fn route_candidates_are_always_suitable(
        facts in pools(),
        text in texts(),
        source in prop::sample::select(vec!["http", "voice"]),
        tokens in 1_u32..12_000,
        private in any::<bool>(),
        mode in prop::sample::select(vec![RouteMode::Shadow, RouteMode::Suggest, RouteMode::Automatic]),
    ) {
        let asked = Asked { text: &text, source, priority: Priority::Normal, skills: &[], tokens_estimate: tokens, private };
        let may = |f: &BackendFacts| {
            (!private || f.privacy == Privacy::Local) && f.context_tokens_max.is_none_or(|max| max >= tokens)
        };
        match routed(&facts, mode, &asked) {
            Ok(route) => {
                prop_assert!(!route.candidates.is_empty());
                for (n, name) in route.candidates.iter().enumerate() {
                    prop_assert!(facts.iter().any(|f| f.name == *name && may(f)), "{name}");
                    prop_assert!(!route.candidates[..n].contains(name), "{name} twice");
                }
                if mode != RouteMode::Automatic && !route.is_called {
                    prop_assert_eq!(Some(route.primary()), facts.iter().find(|f| may(f)).map(|f| f.name.as_str()));
                }
                if let Some(stripped) = &route.stripped_text {
                    prop_assert!(text.ends_with(stripped.as_str()) || text.trim_end().ends_with(stripped.as_str()));
                }
                prop_assert_eq!(route.candidates.len() + route.alternatives.len() > facts.len() - 1, true);
            }
            Err(e) => {
                let is_obeyed = mode == RouteMode::Automatic || matches!(e, NoRoute::Called { .. });
                prop_assert!(is_obeyed || !facts.iter().any(may), "{e}");
                prop_assert!(!e.to_string().is_empty());
            }
        }
    }

    #[test]
    fn rate_window_never_exceeds_limit_and_reported_time_is_exact(
        requests_max in 1_u32..12,
        reserve in 0_u32..6,
        steps in prop::collection::vec((0_i64..400, prop::sample::select(Priority::ALL.to_vec())), 1..200),
    ) {
        let limit = RateWindow { requests_max, window_ms: 1_000, reserve: reserve.min(requests_max - 1) };
        let mut window = Window::new(Some(limit));
        let (mut now, mut began) = (Micros(0), Vec::new());
        for (wait_ms, class) in steps {
            now = now.plus_ms(wait_ms);
            if let Err(shut) = window.may_start(class, now) {
                prop_assert!(shut.until > now);
                // Without other requests in between, the reported time is exact to the millisecond.
                prop_assert!(window.clone().may_start(class, shut.until.plus_ms(-1)).is_err());
                prop_assert!(window.clone().may_start(class, shut.until).is_ok());
                continue;
            }
            window.started(now);
            began.push(now);
            let inside = began.iter().filter(|b| now.since_ms(**b) < limit.window_ms).count();
            prop_assert!(inside <= requests_max as usize);
            prop_assert!(class <= Priority::High || inside <= (requests_max - limit.reserve) as usize);
        }
    }

    #[test]
    fn hand_over_message_fits_the_budget(
        persona in "\\PC{0,200}",
        sent in prop::collection::vec(("\\PC{0,300}", "\\PC{0,600}"), 0..8),
        text in "\\PC{0,300}",
        tokens_max in 50_u32..600,
    ) {
        use crate::message::Message;
        let mut messages: Vec<Message> =
            sent.iter().flat_map(|(user, answer)| [Message::user(user.clone()), Message::assistant(answer.clone())]).collect();
        messages.push(Message::user(text));
        let bytes: usize = hand_over(&persona, &messages, tokens_max).iter().map(Message::len_bytes).sum();
        prop_assert!(bytes <= tokens_max as usize * 4, "{bytes}");
    }
}
