//! Python's `str`, `repr` and `json.dumps` over template values, and the way from request JSON to template values.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Deeper values exist only in a template that builds them on purpose.
const MAX_DEPTH: usize = 200;

/// Shortest text that reads back as the same float, with Python's switch to an exponent at 1e16 and below 1e-4.
pub fn float_repr(value: f64) -> String {
    let debug = format!("{value:?}"); // same digits and the same thresholds as Python; "1e16" instead of "1e+16"
    match debug.split_once('e') {
        Some((digits, exponent)) => {
            let exponent: i32 = exponent.parse().unwrap_or(0);
            format!("{digits}e{exponent:+03}")
        }
        None => debug,
    }
}

/// The float inside a value that is a number and not an integer.
pub fn as_float(value: &Value) -> Option<f64> {
    if value.kind() == ValueKind::Number && !value.is_integer() {
        f64::try_from(value.clone()).ok()
    } else {
        None
    }
}

/// Text that one value may make. A list that holds another twice, and that again twice, is small itself and endless in
/// print, and the engine counts a text only when it is whole.
const MAX_TEXT: usize = 16 << 20;

pub fn check_size(size: usize) -> Result<(), Error> {
    if size <= MAX_TEXT {
        return Ok(());
    }
    Err(Error::new(ErrorKind::OutOfFuel, "a value makes too much text"))
}

/// A map that is a Python dictionary; a namespace, a cycler or a macro is a map to minijinja alone.
pub fn is_dict(value: &Value) -> bool {
    value.kind() == ValueKind::Map
        && value.as_object().is_none_or(|object| {
            let name = object.type_name();
            !["Namespace", "Cycler", "Joiner", "Macro", "Loop"].iter().any(|known| name.ends_with(known))
        })
}

/// Python's `str()` of a value.
pub fn to_str(value: &Value) -> Result<String, Error> {
    match value.as_str() {
        Some(text) => Ok(text.to_string()),
        None if value.is_undefined() => Ok(String::new()),
        None => {
            let mut out = String::new();
            repr(value, 0, &mut out)?;
            Ok(out)
        }
    }
}

/// Python's `repr()`, which `str()` of a list or dictionary uses for what is inside.
fn repr(value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    check_size(out.len())?;
    if depth > MAX_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "a value is nested too deeply to print"));
    }
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::String => repr_string(value.as_str().unwrap_or_default(), out),
        ValueKind::Number => match as_float(value) {
            Some(f) if f.is_nan() => out.push_str("nan"),
            Some(f) if f.is_infinite() => out.push_str(if f > 0.0 { "inf" } else { "-inf" }),
            Some(f) => out.push_str(&float_repr(f)),
            None => out.push_str(&value.to_string()),
        },
        // Python would print an iterator as an object with its address; its items are of more use.
        ValueKind::Seq | ValueKind::Iterable => {
            let tuple = value.is_tuple();
            out.push(if tuple { '(' } else { '[' });
            let mut count = 0;
            for item in value.try_iter()?.checked() {
                out.push_str(if count > 0 { ", " } else { "" });
                repr(&item?, depth + 1, out)?;
                count += 1;
            }
            out.push_str(if tuple && count == 1 { "," } else { "" });
            out.push(if tuple { ')' } else { ']' });
        }
        ValueKind::Map if is_dict(value) => {
            out.push('{');
            for (at, key) in value.try_iter()?.checked().enumerate() {
                let key = key?;
                out.push_str(if at > 0 { ", " } else { "" });
                repr(&key, depth + 1, out)?;
                out.push_str(": ");
                repr(&value.get_item(&key)?, depth + 1, out)?;
            }
            out.push('}');
        }
        ValueKind::Map => out.push_str("<namespace object>"),
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

fn repr_string(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            c if is_printable(c) => out.push(c),
            c => match c as u32 {
                code @ 0..=0xFF => out.push_str(&format!("\\x{code:02x}")),
                code @ 0x100..=0xFFFF => out.push_str(&format!("\\u{code:04x}")),
                code => out.push_str(&format!("\\U{code:08x}")),
            },
        }
    }
    out.push(quote);
}

/// `str.isprintable()`: not a control, format, private, unassigned or separator character. Rust's Debug escape knows the
/// same set; behind another character it does not also escape combining marks.
fn is_printable(c: char) -> bool {
    let pair: String = ['a', c].iter().collect();
    let mut escaped = pair.escape_debug().skip(1);
    escaped.next() == Some(c)
}

/// Request JSON as template values: key order kept, integers stay integers.
pub fn from_json(json: serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(b) => Value::from(b),
        serde_json::Value::Number(n) => match (n.as_i64(), n.as_u64(), n.as_f64()) {
            (Some(i), _, _) => Value::from(i),
            (_, Some(u), _) => Value::from(u),
            (_, _, f) => Value::from(f.unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(s) => Value::from(s),
        serde_json::Value::Array(list) => Value::from(list.into_iter().map(from_json).collect::<Vec<_>>()),
        serde_json::Value::Object(map) => Value::from_pairs(map.into_iter().map(|(k, v)| (k, from_json(v)))),
    }
}

/// The options of Hugging Face's `tojson` filter.
pub struct Dumps {
    pub ensure_ascii: bool,
    /// The text of one level, when the output is spread over lines.
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

impl Dumps {
    pub fn dumps(&self, value: &Value) -> Result<String, Error> {
        let mut out = String::new();
        self.write(value, 0, &mut out)?;
        Ok(out)
    }

    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::new(ErrorKind::InvalidOperation, "tojson: value nested too deeply"));
        }
        check_size(out.len())?;
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => {
                let items = value.try_iter()?.checked().collect::<Result<Vec<_>, _>>()?;
                self.container('[', ']', items.len(), depth, out, |at, out| self.write(&items[at], depth + 1, out))?;
            }
            ValueKind::Map => {
                let pairs = self.pairs(value)?;
                self.container('{', '}', pairs.len(), depth, out, |at, out| {
                    self.string(&pairs[at].0, out);
                    out.push_str(&self.key_separator);
                    self.write(&pairs[at].1, depth + 1, out)
                })?;
            }
            other => {
                let message = format!("tojson: a value of kind {other} cannot be written as JSON");
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        }
        Ok(())
    }

    fn pairs(&self, map: &Value) -> Result<Vec<(String, Value)>, Error> {
        let mut pairs = Vec::new();
        for key in map.try_iter()?.checked() {
            let key = key?;
            let item = map.get_item(&key)?;
            let name = match key.kind() {
                ValueKind::String => key.as_str().unwrap_or_default().to_string(),
                ValueKind::None => "null".to_string(),
                ValueKind::Bool => if key.is_true() { "true" } else { "false" }.to_string(),
                ValueKind::Number => number(&key),
                other => {
                    let message = format!("tojson: a mapping key of kind {other} cannot be written as JSON");
                    return Err(Error::new(ErrorKind::InvalidOperation, message));
                }
            };
            pairs.push((name, item));
        }
        if self.sort_keys {
            pairs.sort_by(|a, b| a.0.cmp(&b.0));
        }
        Ok(pairs)
    }

    fn container(
        &self,
        open: char,
        close: char,
        count: usize,
        depth: usize,
        out: &mut String,
        mut item: impl FnMut(usize, &mut String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        out.push(open);
        for at in 0..count {
            if at > 0 {
                out.push_str(&self.item_separator);
            }
            self.new_line(depth + 1, out);
            item(at, out)?;
        }
        if count > 0 {
            self.new_line(depth, out);
        }
        out.push(close);
        Ok(())
    }

    fn new_line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            for _ in 0..depth {
                out.push_str(indent);
            }
        }
    }

    fn string(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
                c if self.ensure_ascii && c as u32 > 0x7E => {
                    // Python escapes everything outside printable ASCII here, DEL included.
                    let mut units = [0u16; 2];
                    for unit in c.encode_utf16(&mut units) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

fn number(value: &Value) -> String {
    match as_float(value) {
        Some(f) if f.is_nan() => "NaN".to_string(),
        Some(f) if f.is_infinite() => if f > 0.0 { "Infinity" } else { "-Infinity" }.to_string(),
        Some(f) => float_repr(f),
        None => value.to_string(),
    }
}
