//! Finds model servers: on the usual ports of this machine, or at one address.

use std::path::PathBuf;

use annie_llm::{ModelConfig, Offer, OpenAiModel, Profile, Secret};

use crate::{
    cli::{
        args,
        console::{Console, tame},
        failure::{Exit, Failure},
    },
    config::{Environment, read_key, service_of},
    probe::quoted,
    system,
};

/// The default ports of model servers, with the command that starts each server.
const USUAL: [(&str, u16, &str); 4] = [
    ("Ollama", 11_434, "ollama pull qwen2.5:7b && ollama serve"),
    ("llama.cpp", 8_080, "llama-server -m MODEL.gguf --jinja -c 8192"),
    ("vLLM", 8_000, "vllm serve MODEL --enable-auto-tool-choice --tool-call-parser hermes"),
    ("LM Studio", 1_234, "lms server start, or Developer > Start Server"),
];
/// How long a server may take to answer, in milliseconds: on the usual ports, and at a named address.
const LOOK_MS_MAX: u64 = 2_000;
const NAMED_MS_MAX: u64 = 20_000;
/// Maximum number of models that are listed when one must be chosen.
const MODELS_SHOWN: usize = 8;

/// A server that answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub name: String,
    pub base_url: String,
    pub model: String,
}

impl Found {
    /// A client for the server. The key is sent only to an address that the operator named.
    pub fn client(&self, key: &Key) -> ModelConfig {
        client(&self.base_url, &self.model, key)
    }
}

fn client(base_url: &str, model: &str, key: &Key) -> ModelConfig {
    ModelConfig {
        name: "setup".to_owned(),
        profile: service_of(base_url).unwrap_or_default(),
        base_url: base_url.to_owned(),
        model: model.to_owned(),
        api_key: key.secret.clone(),
        ..ModelConfig::default()
    }
}

/// The key of the server, and where it is kept.
#[derive(Default)]
pub(super) struct Key {
    secret: Option<Secret>,
    variable: Option<String>,
    file: Option<PathBuf>,
}

impl Key {
    /// The key that the options name.
    pub fn of(options: &args::Setup, environment: &Environment, has_url: bool) -> Result<Self, Failure> {
        if (options.api_key_env.is_some() || options.api_key_file.is_some()) && !has_url {
            let failure = Failure::new(Exit::Usage, "a key is given, but no server for it");
            return Err(failure.fix("name the server: annie setup --url URL"));
        }
        if let Some(name) = &options.api_key_env {
            let Some(key) = environment.get(name).map(str::trim).filter(|key| !key.is_empty()) else {
                let failure = Failure::new(Exit::Usage, format!("{name} is not set or empty"));
                return Err(failure.fix(format!("export {name}=..., or use --api-key-file")));
            };
            return Ok(Self { secret: Some(Secret::new(key)), variable: Some(name.clone()), file: None });
        }
        if let Some(path) = &options.api_key_file {
            let secret = Some(read_key(path, "--api-key-file")?);
            // The path is made absolute, because commands read the configuration from any working directory.
            let file = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            return Ok(Self { secret, variable: None, file: Some(file) });
        }
        Ok(Self::default())
    }

    /// The configuration line that references the key; never the key itself.
    pub fn toml(&self) -> Option<String> {
        let variable = self.variable.as_ref().map(|name| format!("api_key_env = {}\n", quoted(name)));
        variable.or_else(|| self.file.as_ref().map(|f| format!("api_key_file = {}\n", quoted(&f.to_string_lossy()))))
    }
}

/// Finds the servers that answer.
pub(super) async fn look(
    console: &Console,
    url: Option<&str>,
    options: &args::Setup,
    key: &Key,
) -> Result<Vec<Found>, Failure> {
    if let Some(url) = url {
        let base = base_of(url);
        if is_deployment(&base) {
            return Err(by_hand(&base));
        }
        let offer = ask(&base, key, NAMED_MS_MAX).await?.map_err(|e| {
            let failure = Failure::new(Exit::NotFound, format!("{}: {}", tame(&base), tame(&e.to_string())));
            failure
                .fix("check the address and whether the server runs; a service needs --api-key-env or --api-key-file")
        })?;
        return Ok(vec![found(&base, &offer, options, &[])?]);
    }
    let mut all: Vec<Found> = Vec::new();
    for (_, port) in ports(options) {
        let base = format!("http://127.0.0.1:{port}/v1");
        match ask(&base, key, LOOK_MS_MAX).await? {
            Ok(offer) => match found(&base, &offer, options, &all) {
                Ok(one) => {
                    console.say(&format!("port {port}: found, with the model {}", tame(&one.model)));
                    all.push(one);
                }
                Err(failure) => console.say(&format!("port {port}: {}", failure.what)),
            },
            Err(_) => console.say(&format!("port {port}: no model server")),
        }
    }
    Ok(all)
}

async fn ask(base: &str, key: &Key, ms_max: u64) -> Result<Result<Offer, annie_core::message::ModelError>, Failure> {
    let config =
        ModelConfig { check_ms_max: ms_max, connect_ms_max: ms_max.min(5_000), ..client(base, "unknown", key) };
    let model = OpenAiModel::new(config, system::env().entropy.clone())
        .map_err(|e| Failure::new(Exit::Usage, tame(&e.to_string())).fix("write it as http://HOST:PORT/v1"))?;
    Ok(model.offer().await)
}

/// The server with its chosen model and a unique name.
fn found(base: &str, offer: &Offer, options: &args::Setup, others: &[Found]) -> Result<Found, Failure> {
    if offer.owner.as_deref() == Some("annie") {
        return Err(Failure::new(Exit::Usage, format!("{base} is an Annie, and no model server")));
    }
    let shown = || offer.models.iter().take(MODELS_SHOWN).map(|m| tame(m)).collect::<Vec<_>>().join(", ");
    let model = match &options.model {
        Some(name) if offer.models.is_empty() || offer.models.contains(name) => name.clone(),
        Some(name) => {
            let failure = Failure::new(Exit::NotFound, format!("{base} has no model {name:?}"));
            return Err(failure.fix(format!("it has {}", shown())));
        }
        // Of a service with many models the first one is arbitrary, so the user must choose.
        None if offer.models.len() > MODELS_SHOWN => {
            let failure = Failure::new(Exit::Usage, format!("{base} has {} models", offer.models.len()));
            return Err(failure.fix(format!("choose one with --model, such as {}", shown())));
        }
        None => {
            let is_chat_model = |model: &&String| !model.to_ascii_lowercase().contains("embed");
            let first = offer.models.iter().find(is_chat_model).or(offer.models.first());
            let none =
                || Failure::new(Exit::NotFound, format!("{base} has no model")).fix("load one, or name it: --model");
            first.cloned().ok_or_else(none)?
        }
    };
    let word = service_of(base).map(Profile::as_str).or_else(|| offer.kind()).unwrap_or("model");
    let is_free = |name: &String| others.iter().all(|other| other.name != *name);
    let names = std::iter::once(word.to_owned()).chain((2..=u32::MAX).map(|n| format!("{word}-{n}")));
    let name = names.into_iter().find(is_free).unwrap_or_default();
    Ok(Found { name, base_url: base.to_owned(), model })
}

fn ports(options: &args::Setup) -> Vec<(&'static str, u16)> {
    if options.port.is_empty() {
        return USUAL.iter().map(|(name, port, _)| (*name, *port)).collect();
    }
    options.port.iter().map(|port| ("", *port)).collect()
}

/// Adds the protocol's path to `http://host:port`.
fn base_of(url: &str) -> String {
    let url = url.trim().trim_end_matches('/');
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    if after_scheme.contains('/') { url.to_owned() } else { format!("{url}/v1") }
}

/// Whether the address is one Azure deployment, which has no list of models and needs an API version.
fn is_deployment(base: &str) -> bool {
    service_of(base) == Some(Profile::Azure) && base.contains("/deployments/")
}

/// The failure for a server that setup cannot query, with a configuration to write manually.
fn by_hand(base: &str) -> Failure {
    let what = format!("{} is one Azure deployment, which setup cannot query", tame(base));
    Failure::new(Exit::Usage, what).fix(format!(
        "give the address of the resource, https://NAME.openai.azure.com/openai/v1, or write into the file yourself:\n  \
         [[backend]]\n  name = \"azure\"\n  profile = \"azure\"\n  base_url = {}\n  model = \"DEPLOYMENT\"\n  \
         api_version = \"2024-10-21\"\n  api_key_env = \"AZURE_OPENAI_API_KEY\"",
        quoted(base)
    ))
}

/// The failure if no server was found, with the searched addresses and the next steps.
pub(super) fn nothing_found(url: Option<&str>, options: &args::Setup) -> Failure {
    let places = match url {
        Some(url) => tame(url),
        None => {
            let one = |(name, port): &(&str, u16)| format!("{name} {port}").trim().to_owned();
            format!("this machine ({})", ports(options).iter().map(one).collect::<Vec<_>>().join(", "))
        }
    };
    let ways = USUAL.iter().map(|(name, _, how)| format!("\n    {name}: {how}")).collect::<String>();
    Failure::new(Exit::NotFound, format!("no model server was found at {places}; nothing was written")).fix(format!(
        "annie works now with its offline planner, which is no language model: annie ask \"create a task to call Bob\"\n  \
         start a server, then annie setup again:{ways}\n    a service: annie setup --url https://openrouter.ai/api/v1 \
         --model NAME --api-key-env OPENROUTER_API_KEY"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_without_a_path_gets_the_version_path() {
        for (given, base) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1"),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/v1"),
            ("http://127.0.0.1:8080/v1/", "http://127.0.0.1:8080/v1"),
            ("https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1"),
        ] {
            assert_eq!(base_of(given), base);
        }
    }

    #[test]
    fn service_gets_its_profile_as_name_and_a_deployment_is_refused() {
        for (url, profile) in [
            ("https://openrouter.ai/api/v1", Profile::OpenRouter),
            ("https://OpenRouter.ai:443/api/v1", Profile::OpenRouter),
            ("https://api.openai.com/v1", Profile::OpenAi),
            ("https://api.anthropic.com/v1", Profile::Anthropic),
            ("https://name.openai.azure.com/openai/v1", Profile::Azure),
            ("https://openrouter.ai.example.org/api/v1", Profile::Generic),
            ("http://127.0.0.1:11434/v1", Profile::Generic),
        ] {
            assert_eq!(client(url, "m", &Key::default()).profile, profile, "{url}");
            let offer = Offer { models: vec!["m".to_owned()], owner: None };
            let name = found(url, &offer, &args::Setup::default(), &[]).unwrap().name;
            assert_eq!(name, if profile == Profile::Generic { "model" } else { profile.as_str() }, "{url}");
        }
        let refused = by_hand("https://name.openai.azure.com/openai/deployments/gpt");
        assert!(refused.fix.unwrap().contains("profile = \"azure\"\n  base_url = \"https://name.openai"));
        assert!(is_deployment("https://name.openai.azure.com/openai/deployments/gpt"));
        assert!(!is_deployment("https://name.openai.azure.com/openai/v1"));
    }

    #[test]
    fn found_server_uses_the_given_or_first_chat_model_and_a_unique_name() {
        let offer = |models: &[&str], owner: &str| Offer {
            models: models.iter().map(|m| (*m).to_owned()).collect(),
            owner: Some(owner.to_owned()),
        };
        let options = |model: Option<&str>| args::Setup { model: model.map(str::to_owned), ..args::Setup::default() };
        let two = offer(&["nomic-embed-text", "qwen2.5:7b", "gemma3:4b"], "library");
        let first = found("http://x/v1", &two, &options(None), &[]).unwrap();
        assert_eq!((first.name.as_str(), first.model.as_str()), ("ollama", "qwen2.5:7b"));
        let second = found("http://y/v1", &two, &options(Some("gemma3:4b")), &[first]).unwrap();
        assert_eq!((second.name.as_str(), second.model.as_str()), ("ollama-2", "gemma3:4b"));
        let missing = found("http://y/v1", &two, &options(Some("gpt-9")), &[]).unwrap_err();
        assert!(missing.fix.unwrap().contains("gemma3:4b"));
        let many: Vec<String> = (0..300).map(|n| format!("m{n}")).collect();
        let many = Offer { models: many, owner: None };
        assert!(found("http://y/v1", &many, &options(None), &[]).unwrap_err().fix.unwrap().contains("--model"));
        assert_eq!(found("http://y/v1", &many, &options(Some("m7")), &[]).unwrap().model, "m7");
        let own = found("http://y/v1", &offer(&["annie"], "annie"), &options(None), &[]).unwrap_err();
        assert!(own.what.contains("is an Annie"), "{}", own.what);
    }
}
