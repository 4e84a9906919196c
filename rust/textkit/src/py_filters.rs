//! Filters, tests and globals whose minijinja versions differ from Jinja2's, or that Hugging Face replaces.

use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind};

use crate::py_value::{self, Dumps};
use crate::py_str;

/// Marks the error of `raise_exception`, so that its text reaches the caller without decoration.
#[derive(Debug)]
pub struct Raised(pub String);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

fn raise_exception(message: Value) -> Result<Value, Error> {
    let text = py_value::to_str(&message);
    Err(Error::new(ErrorKind::InvalidOperation, text.clone()).with_source(Raised(text)))
}

/// `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`, in this order when positional.
fn tojson(value: &Value, positional: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let option = |at: usize, name: &str| -> Result<Option<Value>, Error> {
        let named: Option<Value> = kwargs.get(name)?;
        Ok(positional.get(at).cloned().or(named).filter(|v| !v.is_none()))
    };
    let indent = match option(1, "indent")? {
        None => None,
        Some(value) => Some(match value.as_str() {
            Some(text) => text.to_string(),
            None => " ".repeat(value.as_i64().unwrap_or(i64::from(value.is_true())).clamp(0, 64) as usize),
        }),
    };
    let (mut item_separator, mut key_separator) = (if indent.is_some() { "," } else { ", " }.to_string(), ": ".to_string());
    if let Some(pair) = option(2, "separators")? {
        let pair: Vec<Value> = pair.try_iter()?.collect();
        match pair.as_slice() {
            [item, key] => (item_separator, key_separator) = (py_value::to_str(item), py_value::to_str(key)),
            _ => return Err(Error::new(ErrorKind::InvalidOperation, "tojson: separators needs two strings")),
        }
    }
    let dumps = Dumps {
        ensure_ascii: option(0, "ensure_ascii")?.is_some_and(|v| v.is_true()),
        indent,
        item_separator,
        key_separator,
        sort_keys: option(3, "sort_keys")?.is_some_and(|v| v.is_true()),
    };
    kwargs.assert_all_used()?;
    dumps.dumps(value).map(Value::from)
}

/// Jinja2's escape: five characters, and what is already marked safe stays.
fn escape(value: &Value) -> Value {
    if value.is_safe() {
        return value.clone();
    }
    force_escape(value)
}

fn force_escape(value: &Value) -> Value {
    let mut out = String::new();
    for c in py_value::to_str(value).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    Value::from_safe_string(out)
}

fn trim(value: &Value, chars: Option<Value>) -> Result<Value, Error> {
    let chars = match chars.filter(|c| !c.is_none()) {
        None => None,
        Some(c) => Some(c.as_str().map(str::to_string).ok_or_else(|| {
            Error::new(ErrorKind::InvalidOperation, format!("trim: expected a string, found {}", c.kind()))
        })?),
    };
    Ok(Value::from(py_str::strip(&py_value::to_str(value), chars.as_deref(), true, true)))
}

fn string(value: &Value) -> Value {
    match value.kind() {
        ValueKind::String => value.clone(),
        _ => Value::from(py_value::to_str(value)),
    }
}

/// Jinja2 asks whether `iter(x)` works: strings yes, None, numbers and booleans no, and an undefined value yes.
fn is_iterable(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Iterable | ValueKind::Undefined
    )
}

/// Jinja2 asks for a length and item access: strings and mappings have both.
fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map)
}

pub fn install(env: &mut Environment<'static>) {
    minijinja_contrib::add_to_environment(env);
    env.set_unknown_method_callback(py_str::call_method);
    env.set_formatter(|out, _state, value| {
        match value.as_str() {
            Some(text) => out.write_str(text),
            None => out.write_str(&py_value::to_str(value)),
        }
        .map_err(|error| Error::new(ErrorKind::WriteFailure, "output").with_source(error))
    });

    env.add_function("raise_exception", raise_exception);
    env.add_filter("tojson", tojson);
    env.add_filter("e", escape);
    env.add_filter("escape", escape);
    env.add_filter("forceescape", force_escape);
    env.add_filter("trim", trim);
    env.add_filter("string", string);
    env.add_test("iterable", is_iterable);
    env.add_test("sequence", is_sequence);
}
