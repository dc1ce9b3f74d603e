//! Request parameters that completions and responses share. They are validated here, so that an error names the wrong
//! parameter, and no parameter that would change the answer is ignored silently.

use annie_core::{
    caller::{AnswerFormat, CallOptions, Sampling, ToolChoice},
    json_schema,
    message::ToolDef,
};
use serde::Deserialize;
use serde_json::{Number, Value, json};

use crate::error::{ApiError, Code};

/// The maximum number of tools in one request.
const TOOLS_MAX: usize = 128;
/// The maximum length of the name of a tool or a schema, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// The maximum length of the description of a tool, in bytes.
const DESCRIPTION_BYTES_MAX: usize = 16 * 1024;
/// The maximum number of stop sequences.
const STOPS_MAX: usize = 4;
/// The maximum length of a stop sequence, in bytes.
const STOP_BYTES_MAX: usize = 1_000;

/// The sampling parameters of both requests. Every value is read manually, so that an error names it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SamplingParams {
    temperature: Option<Value>,
    top_p: Option<Value>,
    presence_penalty: Option<Value>,
    frequency_penalty: Option<Value>,
    seed: Option<Value>,
    stop: Option<Value>,
    max_tokens: Option<Value>,
    max_completion_tokens: Option<Value>,
    max_output_tokens: Option<Value>,
}

/// The value, unless it is `null`, which means the same as absence.
pub fn given(value: Option<&Value>) -> Option<&Value> {
    value.filter(|v| !v.is_null())
}

impl SamplingParams {
    pub fn check(&self) -> Result<Sampling, ApiError> {
        let tokens = [
            ("max_output_tokens", &self.max_output_tokens),
            ("max_completion_tokens", &self.max_completion_tokens),
            ("max_tokens", &self.max_tokens),
        ];
        let mut output_tokens_max = None;
        for (field, value) in tokens {
            let tokens = whole(field, value.as_ref(), 1, i64::from(u32::MAX))?;
            output_tokens_max = output_tokens_max.or(tokens.and_then(|n| u32::try_from(n).ok()));
        }
        Ok(Sampling {
            temperature: number("temperature", self.temperature.as_ref(), 0.0, 2.0)?,
            top_p: number("top_p", self.top_p.as_ref(), 0.0, 1.0)?,
            presence_penalty: number("presence_penalty", self.presence_penalty.as_ref(), -2.0, 2.0)?,
            frequency_penalty: number("frequency_penalty", self.frequency_penalty.as_ref(), -2.0, 2.0)?,
            seed: whole("seed", self.seed.as_ref(), i64::MIN, i64::MAX)?,
            stop: stops(self.stop.as_ref())?,
            output_tokens_max,
        })
    }
}

fn number(field: &str, value: Option<&Value>, min: f64, max: f64) -> Result<Option<Number>, ApiError> {
    let Some(value) = given(value) else { return Ok(None) };
    match value {
        Value::Number(number) if number.as_f64().is_some_and(|n| (min..=max).contains(&n)) => Ok(Some(number.clone())),
        _ => Err(ApiError::invalid(format!("{field} is a number from {min} to {max}, not {}", shown(value))).at(field)),
    }
}

fn whole(field: &str, value: Option<&Value>, min: i64, max: i64) -> Result<Option<i64>, ApiError> {
    let Some(value) = given(value) else { return Ok(None) };
    match value.as_i64().filter(|n| (min..=max).contains(n)) {
        Some(n) => Ok(Some(n)),
        None if min == 1 => {
            Err(ApiError::invalid(format!("{field} is a whole number above 0, not {}", shown(value))).at(field))
        }
        None => Err(ApiError::invalid(format!("{field} is a whole number, not {}", shown(value))).at(field)),
    }
}

fn stops(value: Option<&Value>) -> Result<Vec<String>, ApiError> {
    let wrong = || {
        let why = format!("stop is a text, or a list of at most {STOPS_MAX} texts of 1 to {STOP_BYTES_MAX} bytes");
        ApiError::invalid(why).at("stop")
    };
    let texts = match given(value) {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(list)) => {
            list.iter().map(|v| v.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>().ok_or_else(wrong)?
        }
        Some(_) => return Err(wrong()),
    };
    let fits = texts.len() <= STOPS_MAX && texts.iter().all(|t| (1..=STOP_BYTES_MAX).contains(&t.len()));
    if fits { Ok(texts) } else { Err(wrong()) }
}

/// The field of a completion, whose schema is in an object of its own.
pub const NESTED: &str = "response_format";

/// The format from `response_format` of a completion or `text.format` of a response. In the latter the schema is beside the
/// type.
pub fn format(value: Option<&Value>, field: &str) -> Result<Option<AnswerFormat>, ApiError> {
    let Some(value) = given(value) else { return Ok(None) };
    match value["type"].as_str() {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(AnswerFormat::JsonObject)),
        Some("json_schema") => {
            let (inner, field) = match value.get("json_schema") {
                Some(inner) => (inner, format!("{field}.json_schema")),
                None if field == NESTED => {
                    let why = "the type json_schema needs {\"name\": …, \"schema\": …} here";
                    return Err(ApiError::invalid(why).at(format!("{field}.json_schema")));
                }
                None => (value, field.to_owned()),
            };
            let name = inner["name"].as_str().unwrap_or_default();
            if !is_name(name) {
                return Err(bad_name(format!("{field}.name")));
            }
            let at = format!("{field}.schema");
            let Some(schema) = given(inner.get("schema")) else {
                return Err(ApiError::invalid("the JSON Schema that the answer must fit is missing").at(at));
            };
            json_schema::check(schema).map_err(|why| ApiError::invalid(why).at(at))?;
            Ok(Some(AnswerFormat::JsonSchema {
                name: name.to_owned(),
                description: inner["description"].as_str().map(str::to_owned),
                schema: schema.clone(),
                strict: inner["strict"].as_bool().unwrap_or_default(),
            }))
        }
        _ => {
            let why =
                format!("{} is no type here; the types are text, json_object, json_schema", shown(&value["type"]));
            Err(ApiError::invalid(why).at(format!("{field}.type")))
        }
    }
}

/// The client's tools. A response has the function's fields beside its type.
pub fn tools(value: Option<&Value>) -> Result<Vec<ToolDef>, ApiError> {
    let Some(value) = given(value) else { return Ok(Vec::new()) };
    let list = value.as_array().ok_or_else(|| ApiError::invalid("tools is a list").at("tools"))?;
    if list.len() > TOOLS_MAX {
        let why = format!("there are {} tools, and at most {TOOLS_MAX} are allowed", list.len());
        return Err(ApiError::invalid(why).at("tools"));
    }
    let mut tools: Vec<ToolDef> = Vec::with_capacity(list.len());
    for (n, tool) in list.iter().enumerate() {
        let tool = self::tool(tool, &format!("tools[{n}]"))?;
        if tools.iter().any(|t| t.name == tool.name) {
            return Err(ApiError::invalid(format!("two tools have the name {:?}", tool.name)).at(format!("tools[{n}]")));
        }
        tools.push(tool);
    }
    Ok(tools)
}

fn tool(tool: &Value, field: &str) -> Result<ToolDef, ApiError> {
    if tool["type"] != "function" {
        let why = format!("only tools of type `function` can be called here, not {}", shown(&tool["type"]));
        return Err(ApiError::new(Code::Unsupported, why).at(format!("{field}.type")));
    }
    let (inner, field) = match tool.get("function") {
        Some(inner) => (inner, format!("{field}.function")),
        None => (tool, field.to_owned()),
    };
    let name = inner["name"].as_str().unwrap_or_default();
    if !is_name(name) {
        return Err(bad_name(format!("{field}.name")));
    }
    let description = inner["description"].as_str().unwrap_or_default();
    if description.len() > DESCRIPTION_BYTES_MAX {
        let why = format!("it has {} bytes, and at most {DESCRIPTION_BYTES_MAX} are allowed", description.len());
        return Err(ApiError::invalid(why).at(format!("{field}.description")));
    }
    let nothing = json!({"type": "object", "properties": {}});
    let parameters = given(inner.get("parameters")).cloned().unwrap_or(nothing);
    json_schema::check(&parameters).map_err(|why| ApiError::invalid(why).at(format!("{field}.parameters")))?;
    Ok(ToolDef {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters,
        strict: inner["strict"].as_bool().unwrap_or_default(),
    })
}

fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(is_plain)
}

fn bad_name(field: String) -> ApiError {
    ApiError::invalid(format!("a name has 1 to {NAME_BYTES_MAX} letters, digits, _ and -")).at(field)
}

/// Whether the model must call a tool, and which one.
pub fn tool_choice(value: Option<&Value>, tools: &[ToolDef]) -> Result<Option<ToolChoice>, ApiError> {
    let Some(value) = given(value) else { return Ok(None) };
    let wrong = |why: String| Err(ApiError::invalid(why).at("tool_choice"));
    let choice = match value {
        Value::String(word) => match word.as_str() {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" => ToolChoice::Required,
            _ => return wrong(format!("{} is no choice; say auto, none, required or name a function", shown(value))),
        },
        Value::Object(_) if value["type"] == "function" => {
            let name = value["function"]["name"].as_str().or_else(|| value["name"].as_str()).unwrap_or_default();
            if !tools.iter().any(|t| t.name == name) {
                return wrong(format!("there is no tool {name:?} in `tools`"));
            }
            ToolChoice::Tool(name.to_owned())
        }
        _ => return wrong(format!("{} is no choice; say auto, none, required or name a function", shown(value))),
    };
    if tools.is_empty() {
        let asks = !matches!(choice, ToolChoice::Auto | ToolChoice::None);
        return if asks { wrong("there are no `tools` to choose from".to_owned()) } else { Ok(None) };
    }
    Ok(Some(choice))
}

/// A boolean parameter.
pub fn switch(value: Option<&Value>, field: &str) -> Result<Option<bool>, ApiError> {
    let Some(value) = given(value) else { return Ok(None) };
    let wrong = || ApiError::invalid(format!("{field} is true or false, not {}", shown(value))).at(field);
    value.as_bool().map(Some).ok_or_else(wrong)
}

/// Refuses parameters that would change the answer if they were supported.
pub fn refuse(fields: &[(&str, bool, &str)]) -> Result<(), ApiError> {
    match fields.iter().find(|(_, is_asked, _)| *is_asked) {
        Some((field, _, why)) => Err(ApiError::new(Code::Unsupported, *why).at(*field)),
        None => Ok(()),
    }
}

/// All options of the call; the default if the request sets none.
pub fn options(
    sampling: &SamplingParams,
    format: Option<AnswerFormat>,
    tool_choice: Option<ToolChoice>,
    parallel_tool_calls: Option<bool>,
) -> Result<CallOptions, ApiError> {
    Ok(CallOptions { sampling: sampling.check()?, format, tool_choice, parallel_tool_calls, ..CallOptions::default() })
}

/// A shortened value for an error text.
pub fn shown(value: &Value) -> String {
    value.to_string().chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn params_error_names_invalid_sampling_parameter() {
        for (field, value) in [
            ("temperature", json!("hot")),
            ("temperature", json!(2.1)),
            ("top_p", json!(-0.1)),
            ("presence_penalty", json!(3)),
            ("frequency_penalty", json!([])),
            ("seed", json!(1.5)),
            ("stop", json!(["a", "b", "c", "d", "e"])),
            ("stop", json!([1])),
            ("stop", json!("")),
            ("max_tokens", json!(0)),
            ("max_completion_tokens", json!("many")),
            ("max_output_tokens", json!(-1)),
        ] {
            let params: SamplingParams = serde_json::from_value(json!({ field: value })).unwrap();
            assert_eq!(params.check().unwrap_err().field.as_deref(), Some(field), "{value}");
        }
        let params = json!({"temperature": 0, "top_p": null, "stop": "END", "seed": 7, "max_tokens": 5, "max_completion_tokens": 6});
        let sampling = serde_json::from_value::<SamplingParams>(params).unwrap().check().unwrap();
        assert_eq!((sampling.seed, sampling.output_tokens_max, sampling.top_p), (Some(7), Some(6), None));
        assert_eq!((sampling.stop, sampling.temperature), (vec!["END".to_owned()], Some(0.into())));
    }

    #[test]
    fn params_read_answer_format_of_both_apis() {
        let schema = json!({"type": "object"});
        let nested = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": true}});
        let flat = json!({"type": "json_schema", "name": "a", "schema": schema, "strict": true});
        assert_eq!(format(Some(&nested), "f").unwrap(), format(Some(&flat), "f").unwrap());
        assert_eq!(format(Some(&json!({"type": "text"})), "f").unwrap(), None);
        for (wrong, field) in [
            (json!({"type": "xml"}), "f.type"),
            (json!("json"), "f.type"),
            (json!({"type": "json_schema", "json_schema": {"schema": {}}}), "f.json_schema.name"),
            (json!({"type": "json_schema", "json_schema": {"name": "a"}}), "f.json_schema.schema"),
            (json!({"type": "json_schema", "name": "a", "schema": {"type": "text"}}), "f.schema"),
        ] {
            assert_eq!(format(Some(&wrong), "f").unwrap_err().field.as_deref(), Some(field), "{wrong}");
        }
        let bare = format(Some(&json!({"type": "json_schema"})), NESTED).unwrap_err();
        assert_eq!(bare.field.as_deref(), Some("response_format.json_schema"), "{bare}");
    }

    #[test]
    fn params_refuse_invalid_tool_with_its_field() {
        let function = |name: &str| json!({"type": "function", "function": {"name": name}});
        let many: Vec<Value> = (0..129).map(|n| function(&format!("f{n}"))).collect();
        for (wrong, field) in [
            (json!({}), "tools"),
            (json!(many), "tools"),
            (json!([function("a"), function("a")]), "tools[1]"),
            (json!([{"type": "web_search"}]), "tools[0].type"),
            (json!([function("a b")]), "tools[0].function.name"),
            (json!([{"type": "function", "name": ""}]), "tools[0].name"),
            (json!([{"type": "function", "name": "a", "description": "x".repeat(20_000)}]), "tools[0].description"),
            (json!([{"type": "function", "name": "a", "parameters": {"type": "thing"}}]), "tools[0].parameters"),
        ] {
            assert_eq!(tools(Some(&wrong)).unwrap_err().field.as_deref(), Some(field));
        }
        assert_eq!(tools(Some(&json!(many[..128]))).unwrap().len(), 128);
        let offered = tools(Some(&json!([function("a")]))).unwrap();
        let named = json!({"type": "function", "function": {"name": "a"}});
        assert_eq!(tool_choice(Some(&named), &offered).unwrap(), Some(ToolChoice::Tool("a".into())));
        assert_eq!(tool_choice(Some(&json!("none")), &[]).unwrap(), None);
        for (wrong, offered) in [
            (json!("always"), &offered[..]),
            (json!({"type": "function", "name": "b"}), &offered[..]),
            (json!("required"), &[]),
        ] {
            assert_eq!(
                tool_choice(Some(&wrong), offered).unwrap_err().field.as_deref(),
                Some("tool_choice"),
                "{wrong}"
            );
        }
    }
}
