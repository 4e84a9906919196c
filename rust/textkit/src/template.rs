//! One chat template, compiled as Hugging Face transformers compiles it: trim_blocks, lstrip_blocks, loop controls,
//! no autoescape, and the globals `raise_exception` and `strftime_now`.

use std::io::{self, Write};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior};
use serde_json::Value as Json;

use crate::py_filters::{self, Raised};
use crate::{generation_tag, py_value, strftime, Code, Failure};

const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";

/// Calls of macros and blocks inside one another. Real templates stay below ten; the bound keeps the stack small.
const RECURSION_LIMIT: usize = 200;

pub struct ChatTemplate {
    env: Environment<'static>,
    has_tool_use: bool,
    special_tokens: serde_json::Map<String, Json>,
    max_output: usize,
}

pub struct RenderInput<'a> {
    pub messages: &'a str,
    pub tools: &'a str,
    pub documents: &'a str,
    pub variables: &'a str,
    pub add_generation_prompt: bool,
    pub now: strftime::BrokenDownTime,
}

/// Collects the output and refuses to grow beyond a limit.
struct Limited {
    bytes: Vec<u8>,
    limit: usize,
    full: bool,
}

impl Write for Limited {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.limit - self.bytes.len() < data.len() {
            self.full = true;
            return Err(io::Error::other("output limit"));
        }
        self.bytes.extend_from_slice(data);
        Ok(data.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ChatTemplate {
    /// `source` is one template, or the JSON list `[{"name": …, "template": …}, …]` of tokenizer_config.json.
    pub fn compile(source: &str, special_tokens: &str, fuel: u64, max_output: usize) -> Result<ChatTemplate, Failure> {
        let mut env = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        env.set_syntax(syntax.map_err(|error| Failure::new(Code::Internal, error.to_string()))?);
        env.set_auto_escape_callback(|_| AutoEscape::None);
        env.set_undefined_behavior(UndefinedBehavior::Lenient);
        env.set_recursion_limit(RECURSION_LIMIT);
        env.set_fuel(Some(fuel));
        py_filters::install(&mut env);

        let named = named_templates(source)?;
        let has_tool_use = named.iter().any(|(name, _)| name == TOOL_USE);
        for (name, text) in named.into_iter().filter(|(name, _)| name == DEFAULT || name == TOOL_USE) {
            env.add_template_owned(name, generation_tag::rename(&newlines(&text))).map_err(|error| {
                Failure::new(Code::Corrupt, format!("the chat template does not parse: {}", describe(&error)))
            })?;
        }
        let special_tokens = parse_object(special_tokens, "special tokens")?;
        Ok(ChatTemplate { env, has_tool_use, special_tokens, max_output })
    }

    pub fn render(&self, input: &RenderInput) -> Result<String, Failure> {
        let tools = parse_list(input.tools, "tools")?;
        let name = if self.has_tool_use && !tools.is_none() { TOOL_USE } else { DEFAULT };
        let context = self.context(input, tools)?;
        let internal = |error: Error| Failure::new(Code::Internal, describe(&error));
        let template = self.env.get_template(name).map_err(internal)?;
        let mut out = Limited { bytes: Vec::new(), limit: self.max_output, full: false };
        let outcome = template.render_captured_to(context, &mut out).map(|_| ());
        if out.full {
            let message = format!("the chat template's output is larger than {} bytes", self.max_output);
            return Err(Failure::new(Code::Exhausted, message));
        }
        outcome.map_err(|error| render_failure(&error))?;
        String::from_utf8(out.bytes).map_err(|error| Failure::new(Code::Internal, error.to_string()))
    }
}

const _: () = {
    const fn shareable<T: Send + Sync>() {}
    shareable::<ChatTemplate>();
};

/// Detail and line of an error, without the source text that Debug output would carry.
fn describe(error: &Error) -> String {
    let mut text = error.kind().to_string();
    if let Some(detail) = error.detail() {
        text = format!("{text}: {detail}");
    }
    if let Some(line) = error.line() {
        text = format!("{text} (line {line} of the template)");
    }
    text
}

fn render_failure(error: &Error) -> Failure {
    let mut deepest = error;
    let mut link: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(at) = link {
        if let Some(raised) = at.downcast_ref::<Raised>() {
            return Failure::new(Code::Invalid, raised.0.clone());
        }
        if let Some(inner) = at.downcast_ref::<Error>() {
            deepest = inner;
            if inner.kind() == ErrorKind::OutOfFuel {
                return Failure::new(Code::Exhausted, "the chat template ran for too long and was stopped");
            }
            if inner.detail().is_some_and(|detail| detail.contains("recursion limit")) {
                return Failure::new(Code::Exhausted, "the chat template calls itself too deeply");
            }
        }
        link = at.source();
    }
    Failure::new(Code::Invalid, format!("the chat template cannot render these messages: {}", describe(deepest)))
}

fn parse(text: &str, what: &str) -> Result<Json, Failure> {
    serde_json::from_str(text).map_err(|error| Failure::new(Code::Invalid, format!("{what}: {error}")))
}

fn parse_list(text: &str, what: &str) -> Result<Value, Failure> {
    if text.is_empty() {
        return Ok(Value::from(()));
    }
    match parse(text, what)? {
        list @ Json::Array(_) => Ok(py_value::from_json(list)),
        Json::Null => Ok(Value::from(())),
        _ => Err(Failure::new(Code::Invalid, format!("{what}: expected a JSON list"))),
    }
}

/// What transformers does to the messages before a template sees them: keys whose value is null are left out, and the
/// reasoning text is offered under both names that templates read.
fn normalise(message: Json, at: usize) -> Result<Json, Failure> {
    let Json::Object(fields) = message else {
        return Err(Failure::new(Code::Invalid, format!("messages[{at}]: expected a JSON object")));
    };
    let fields: serde_json::Map<String, Json> = fields.into_iter().filter(|(_, value)| !value.is_null()).collect();
    let reasoning = ["reasoning_content", "thinking", "reasoning"].iter().find_map(|name| fields.get(*name).cloned());
    let Some(reasoning) = reasoning else { return Ok(Json::Object(fields)) };
    let mut named = serde_json::Map::new();
    named.insert("thinking".to_string(), reasoning.clone());
    named.extend(fields);
    named.insert("reasoning_content".to_string(), reasoning);
    Ok(Json::Object(named))
}

/// Jinja2 reads every line end of a template as "\n".
fn newlines(source: &str) -> String {
    source.replace("\r\n", "\n").replace('\r', "\n")
}

/// The templates of a source with their names; a source that is not the JSON list form is "default" itself. (Templates
/// may begin with a bracket too, "[INST]", which is no JSON.)
fn named_templates(source: &str) -> Result<Vec<(String, String)>, Failure> {
    let list = match source.trim_start().starts_with('[').then(|| serde_json::from_str::<Json>(source)) {
        Some(Ok(Json::Array(list))) => list,
        _ => return Ok(vec![(DEFAULT.to_string(), source.to_string())]),
    };
    let mut named = Vec::new();
    for (at, entry) in list.iter().enumerate() {
        let field = |name: &str| entry.get(name).and_then(Json::as_str).map(str::to_string);
        match (field("name"), field("template")) {
            (Some(name), Some(template)) => named.push((name, template)),
            _ => {
                let message = format!("chat_template[{at}]: expected an object with the strings name and template");
                return Err(Failure::new(Code::Corrupt, message));
            }
        }
    }
    if named.iter().any(|(name, _)| name == DEFAULT) {
        return Ok(named);
    }
    let names: Vec<&str> = named.iter().map(|(name, _)| name.as_str()).collect();
    let message = format!("chat_template: no template named default; found: {}", names.join(", "));
    Err(Failure::new(Code::Corrupt, message))
}

fn parse_object(text: &str, what: &str) -> Result<serde_json::Map<String, Json>, Failure> {
    if text.is_empty() {
        return Ok(serde_json::Map::new());
    }
    match parse(text, what)? {
        Json::Object(map) => Ok(map),
        _ => Err(Failure::new(Code::Invalid, format!("{what}: expected a JSON object"))),
    }
}

impl ChatTemplate {
    fn context(&self, input: &RenderInput, tools: Value) -> Result<Value, Failure> {
        let Json::Array(messages) = parse(input.messages, "messages")? else {
            return Err(Failure::new(Code::Invalid, "messages: expected a JSON list"));
        };
        let messages =
            messages.into_iter().enumerate().map(|(at, m)| normalise(m, at)).collect::<Result<Vec<_>, _>>()?;

        let now = input.now;
        let strftime_now = move |pattern: String| strftime::format(&pattern, &now);
        let mut pairs = vec![("strftime_now".to_string(), Value::from_function(strftime_now))];
        let variables = parse_object(input.variables, "template variables")?;
        for (name, value) in self.special_tokens.clone().into_iter().chain(variables) {
            pairs.push((name, py_value::from_json(value)));
        }
        // Last, so that no variable can stand in for them.
        pairs.push(("messages".to_string(), py_value::from_json(Json::Array(messages))));
        pairs.push(("tools".to_string(), tools));
        pairs.push(("documents".to_string(), parse_list(input.documents, "documents")?));
        pairs.push(("add_generation_prompt".to_string(), Value::from(input.add_generation_prompt)));
        Ok(Value::from_pairs(pairs))
    }
}
