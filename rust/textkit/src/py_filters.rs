//! Filters, tests and globals whose minijinja versions differ from Jinja2's, or that Hugging Face replaces.

use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind};

use crate::py_args::Bound;
use crate::py_str;
use crate::py_value::{self, Dumps};

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
    let text = py_value::to_str(&message)?;
    Err(Error::new(ErrorKind::InvalidOperation, text.clone()).with_source(Raised(text)))
}

/// `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`, in this order when positional.
fn tojson(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let args = Bound::of_filter("tojson", args, kwargs, &["ensure_ascii", "indent", "separators", "sort_keys"])?;
    let indent = args.get(1).map(|value| match value.as_str() {
        Some(text) => text.to_string(),
        None => " ".repeat(value.as_i64().unwrap_or(i64::from(value.is_true())).clamp(0, 64) as usize),
    });
    let item = if indent.is_some() { "," } else { ", " };
    let (mut item_separator, mut key_separator) = (item.to_string(), ": ".to_string());
    if let Some(pair) = args.get(2) {
        let pair: Vec<Value> = pair.try_iter()?.collect();
        match pair.as_slice() {
            [item, key] => (item_separator, key_separator) = (py_value::to_str(item)?, py_value::to_str(key)?),
            _ => return Err(Error::new(ErrorKind::InvalidOperation, "tojson: separators needs two strings")),
        }
    }
    let dumps = Dumps { ensure_ascii: args.flag(0), indent, item_separator, key_separator, sort_keys: args.flag(3) };
    dumps.dumps(value).map(Value::from)
}

/// Jinja2's escape: five characters, and what is already marked safe stays.
fn escape(value: &Value) -> Result<Value, Error> {
    if value.is_safe() {
        return Ok(value.clone());
    }
    force_escape(value)
}

fn force_escape(value: &Value) -> Result<Value, Error> {
    let mut out = String::new();
    for c in py_value::to_str(value)?.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    Ok(Value::from_safe_string(out))
}

fn trim(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let args = Bound::of_filter("trim", args, kwargs, &["chars"])?;
    Ok(Value::from(py_str::strip(&py_value::to_str(value)?, args.text(0)?, true, true)))
}

/// `default(default_value='', boolean=False)`
fn default(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let args = Bound::of_filter("default", args, kwargs, &["default_value", "boolean"])?;
    if value.is_undefined() || (args.flag(1) && !value.is_true()) {
        return Ok(args.given(0).cloned().unwrap_or_else(|| Value::from("")));
    }
    Ok(value.clone())
}

/// `int(default=0, base=10)`: what cannot be read gives the default.
fn int(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let args = Bound::of_filter("int", args, kwargs, &["default", "base"])?;
    let base = args.integer(1)?.unwrap_or(10);
    let read = match (value.as_str(), value.as_i64()) {
        (Some(text), _) => read_int(text, base).or_else(|| read_float(text).and_then(whole)),
        (_, Some(number)) if value.is_integer() => Some(number),
        _ if value.kind() == ValueKind::Bool => Some(i64::from(value.is_true())),
        _ => py_value::as_float(value).and_then(whole),
    };
    Ok(read.map(Value::from).or_else(|| args.given(0).cloned()).unwrap_or_else(|| Value::from(0)))
}

fn float(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let args = Bound::of_filter("float", args, kwargs, &["default"])?;
    let read = match value.as_str() {
        Some(text) => read_float(text),
        None if value.kind() == ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        None => f64::try_from(value.clone()).ok(),
    };
    Ok(read.map(Value::from).or_else(|| args.given(0).cloned()).unwrap_or_else(|| Value::from(0.0)))
}

fn whole(number: f64) -> Option<i64> {
    (number.is_finite() && number.abs() < 9.2e18).then_some(number as i64)
}

fn read_int(text: &str, base: i64) -> Option<i64> {
    let text = py_str::strip(text, None, true, true).replace('_', "");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(&text)),
    };
    let lower = digits.to_ascii_lowercase();
    let prefixed = [("0x", 16), ("0o", 8), ("0b", 2)].into_iter().find(|(p, _)| lower.starts_with(p));
    let (digits, radix) = match prefixed {
        Some((_, radix)) if base == 0 || base == radix => (&lower[2..], radix),
        _ => (lower.as_str(), if base == 0 { 10 } else { base }),
    };
    if !(2..=36).contains(&radix) || digits.starts_with(['+', '-']) {
        return None;
    }
    i64::from_str_radix(digits, radix as u32).ok().map(|n| sign * n)
}

fn read_float(text: &str) -> Option<f64> {
    py_str::strip(text, None, true, true).replace('_', "").parse().ok()
}

/// `indent(width=4, first=False, blank=False)`; a string as width is the text to indent with.
fn indent(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let args = Bound::of_filter("indent", args, kwargs, &["width", "first", "blank"])?;
    let prefix = match args.get(0).map(|width| (width.as_str(), width.as_i64())) {
        None => "    ".to_string(),
        Some((Some(text), _)) => text.to_string(),
        Some((None, Some(width))) => " ".repeat(width.clamp(0, 4096) as usize),
        Some((None, None)) => return Err(Error::new(ErrorKind::InvalidOperation, "indent: width is no number")),
    };
    // Python adds a newline before it splits, so that a trailing newline keeps its empty line.
    let text = py_value::to_str(value)? + "\n";
    let lines = py_str::split_lines(&text, false);
    let mut out = String::new();
    for (at, line) in lines.iter().map(|line| line.as_str().unwrap_or_default()).enumerate() {
        if at > 0 {
            out.push('\n');
        }
        if (at > 0 || args.flag(1)) && (args.flag(2) || !line.is_empty() || (at == 0 && args.flag(1))) {
            py_value::check_size(out.len() + prefix.len())?;
            out.push_str(&prefix);
        }
        out.push_str(line);
    }
    Ok(Value::from(out))
}

/// `truncate(length=255, killwords=False, end='...', leeway=5)`
fn truncate(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let args = Bound::of_filter("truncate", args, kwargs, &["length", "killwords", "end", "leeway"])?;
    let text = py_value::to_str(value)?;
    let length = args.integer(0)?.unwrap_or(255).max(0) as usize;
    let leeway = args.integer(3)?.unwrap_or(5).max(0) as usize;
    let end = args.text(2)?.unwrap_or("...");
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(Value::from(text));
    }
    let kept: String = text.chars().take(length.saturating_sub(end.chars().count())).collect();
    let kept = if args.flag(1) { kept.as_str() } else { kept.rsplit_once(' ').map_or(kept.as_str(), |(head, _)| head) };
    Ok(Value::from(format!("{kept}{end}")))
}

fn center(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let args = Bound::of_filter("center", args, kwargs, &["width"])?;
    let width = args.integer(0)?.unwrap_or(80);
    py_str::pad(&py_value::to_str(value)?, width, " ", "center").map(Value::from)
}

/// Runs of what Python's `\w` matches.
fn wordcount(value: &Value) -> Result<usize, Error> {
    let text = py_value::to_str(value)?;
    Ok(text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty()).count())
}

/// Jinja2 looks at attributes only here: the entries of a dictionary are none.
fn attr(value: &Value, name: &str) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Map if py_value::is_dict(value) => Ok(Value::UNDEFINED),
        _ => value.get_attr(name),
    }
}

/// `cycler('odd', 'even')`: the library's takes one list.
fn cycler(items: Rest<Value>) -> Result<Value, Error> {
    minijinja_contrib::globals::cycler(items.0)
}

/// `dict(mapping, key=value, …)`
fn dict(args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let mut pairs: Vec<(Value, Value)> = Vec::new();
    for source in args.0.into_iter().chain([Value::from(kwargs)]) {
        match source.kind() {
            ValueKind::Map => {
                for key in source.try_iter()? {
                    let item = source.get_item(&key)?;
                    pairs.push((key, item));
                }
            }
            _ => {
                for pair in source.try_iter()? {
                    pairs.push((pair.get_item_by_index(0)?, pair.get_item_by_index(1)?));
                }
            }
        }
    }
    Ok(Value::from_pairs(pairs))
}

/// An undefined value has a `__call__` in Jinja2 (one that raises), so it counts.
fn is_callable(value: &Value) -> bool {
    value.is_undefined()
        || value.kind() == ValueKind::Plain
        || (value.kind() == ValueKind::Map && !py_value::is_dict(value))
}

fn string(value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => Ok(value.clone()),
        _ => py_value::to_str(value).map(Value::from),
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
    // Not Jinja2's, or not as Jinja2 prints: better unknown than different.
    env.remove_global("debug");
    env.remove_filter("pprint");
    env.set_unknown_method_callback(py_str::call_method);
    env.set_formatter(|out, _state, value| {
        match value.as_str() {
            Some(text) => out.write_str(text),
            None => out.write_str(&py_value::to_str(value)?),
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
    env.add_filter("default", default);
    env.add_filter("d", default);
    env.add_filter("int", int);
    env.add_filter("float", float);
    env.add_filter("indent", indent);
    env.add_filter("truncate", truncate);
    env.add_filter("center", center);
    env.add_filter("wordcount", wordcount);
    env.add_filter("attr", attr);
    env.add_function("cycler", cycler);
    env.add_function("dict", dict);
    env.add_test("callable", is_callable);
    env.add_test("iterable", is_iterable);
    env.add_test("sequence", is_sequence);
}
