//! Python methods that templates call on strings, dictionaries and lists, where minijinja-contrib's own versions are
//! missing or differ: whitespace as Python sees it, keyword arguments, start and end positions.

use minijinja::value::{Tuple, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

use crate::py_args::{wrong_type, Bound};
use crate::py_value;

/// `str.isspace()` of one character: Unicode White_Space and the four separators \x1c to \x1f.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// `str.strip`, `lstrip`, `rstrip`: `chars` is a set of characters, none means whitespace.
pub fn strip<'a>(text: &'a str, chars: Option<&str>, left: bool, right: bool) -> &'a str {
    let drop = |c: char| chars.map_or_else(|| is_space(c), |set| set.contains(c));
    let text = if left { text.trim_start_matches(drop) } else { text };
    if right {
        text.trim_end_matches(drop)
    } else {
        text
    }
}

/// `str.split` and `str.rsplit`.
fn split(text: &str, separator: Option<&str>, limit: Option<i64>, from_right: bool) -> Result<Vec<Value>, Error> {
    let limit = limit.and_then(|n| usize::try_from(n).ok());
    let mut parts: Vec<&str> = Vec::new();
    let mut rest = text;
    match separator {
        Some("") => return Err(Error::new(ErrorKind::InvalidOperation, "empty separator")),
        Some(separator) => {
            while limit.is_none_or(|n| parts.len() < n) {
                let cut = if from_right { rest.rfind(separator) } else { rest.find(separator) };
                let Some(at) = cut else { break };
                let (before, after) = (&rest[..at], &rest[at + separator.len()..]);
                parts.push(if from_right { after } else { before });
                rest = if from_right { before } else { after };
            }
            parts.push(rest);
        }
        None => {
            rest = strip(rest, None, !from_right, from_right);
            while !rest.is_empty() && limit.is_none_or(|n| parts.len() < n) {
                let cut = if from_right { rest.rfind(is_space) } else { rest.find(is_space) };
                let Some(at) = cut else { break };
                let width = rest[at..].chars().next().map_or(1, char::len_utf8);
                let (before, after) = (&rest[..at], &rest[at + width..]);
                parts.push(if from_right { after } else { before });
                rest = strip(if from_right { before } else { after }, None, !from_right, from_right);
            }
            if !rest.is_empty() {
                parts.push(rest);
            }
        }
    }
    if from_right {
        parts.reverse();
    }
    Ok(parts.into_iter().map(Value::from).collect())
}

pub fn split_lines(text: &str, keep_ends: bool) -> Vec<Value> {
    let ends = |c: char| {
        matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(ends) {
        let width = match rest[at..].chars().next() {
            Some('\r') if rest[at + 1..].starts_with('\n') => 2,
            Some(c) => c.len_utf8(),
            None => break,
        };
        lines.push(Value::from(if keep_ends { &rest[..at + width] } else { &rest[..at] }));
        rest = &rest[at + width..];
    }
    if !rest.is_empty() {
        lines.push(Value::from(rest));
    }
    lines
}

/// The part of `text` between two Python positions (in characters, negative from the end), with the characters before
/// it. None when the start lies behind the end.
fn between(text: &str, start: Option<i64>, end: Option<i64>) -> Option<(usize, &str)> {
    if start.is_none() && end.is_none() {
        return Some((0, text));
    }
    let count = text.chars().count() as i64;
    let place = |p: i64| if p < 0 { (p + count).max(0) } else { p };
    let (from, to) = (place(start.unwrap_or(0)), place(end.unwrap_or(count)).min(count));
    if from > to {
        return None;
    }
    let byte = |n: i64| text.char_indices().nth(n as usize).map_or(text.len(), |(at, _)| at);
    Some((from as usize, &text[byte(from)..byte(to)]))
}

fn find(text: &str, args: &Bound, from_right: bool) -> Result<i64, Error> {
    let what = args.needed(0)?;
    let Some((skipped, part)) = between(text, args.integer(1)?, args.integer(2)?) else { return Ok(-1) };
    let at = if from_right { part.rfind(what) } else { part.find(what) };
    Ok(at.map_or(-1, |at| (skipped + part[..at].chars().count()) as i64))
}

/// `str.startswith` and `str.endswith`: one string or a sequence of them.
fn affix(text: &str, args: &Bound, at_end: bool) -> Result<bool, Error> {
    let Some(what) = args.get(0) else { return Err(Error::new(ErrorKind::MissingArgument, "a string is missing")) };
    let Some((_, part)) = between(text, args.integer(1)?, args.integer(2)?) else { return Ok(false) };
    let one = |value: &Value| match value.as_str() {
        Some(s) => Ok(if at_end { part.ends_with(s) } else { part.starts_with(s) }),
        None => Err(wrong_type("a string or a tuple of strings", value)),
    };
    if what.kind() == ValueKind::Seq {
        for item in what.try_iter()? {
            if one(&item)? {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    one(what)
}

/// Longest padding a template may ask for; text of a request is far shorter per field.
const MAX_WIDTH: i64 = 1 << 20;

/// `str.ljust`, `rjust`, `center` and `zfill`.
pub fn pad(text: &str, width: i64, fill: &str, method: &str) -> Result<String, Error> {
    if width > MAX_WIDTH {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("{method}({width}) is wider than {MAX_WIDTH}")));
    }
    let missing = (width - text.chars().count() as i64).max(0) as usize;
    if method == "zfill" {
        let sign = usize::from(text.starts_with(['+', '-']));
        return Ok(format!("{}{}{}", &text[..sign], "0".repeat(missing), &text[sign..]));
    }
    // CPython puts the odd character of center() on the left when the width is odd.
    let left = match method {
        "ljust" => 0,
        "rjust" => missing,
        _ => missing / 2 + (missing & width as usize & 1),
    };
    Ok(format!("{}{text}{}", fill.repeat(left), fill.repeat(missing - left)))
}

fn partition(text: &str, separator: &str, from_right: bool) -> Result<Value, Error> {
    if separator.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "empty separator"));
    }
    let at = if from_right { text.rfind(separator) } else { text.find(separator) };
    let parts = match at {
        Some(at) => [&text[..at], separator, &text[at + separator.len()..]],
        None if from_right => ["", "", text],
        None => [text, "", ""],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from))))
}

fn swap_case(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_uppercase() {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
    }
    out
}

/// Python's `str.title`: a letter after something that is not a letter starts a word.
pub fn title(text: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    for c in text.chars() {
        if inside {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        inside = c.is_lowercase() || c.is_uppercase();
    }
    out
}

fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars.as_str().to_lowercase().chars()).collect(),
        None => String::new(),
    }
}

fn string_method(state: &State, text: &str, method: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    let bind = |names: &[&str]| Bound::new(method, args, names);
    let outcome = || -> Result<Value, Error> {
        Ok(match method {
            "strip" => Value::from(strip(text, bind(&["chars"])?.text(0)?, true, true)),
            "lstrip" => Value::from(strip(text, bind(&["chars"])?.text(0)?, true, false)),
            "rstrip" => Value::from(strip(text, bind(&["chars"])?.text(0)?, false, true)),
            "split" | "rsplit" => {
                let args = bind(&["sep", "maxsplit"])?;
                Value::from(split(text, args.text(0)?, args.integer(1)?, method == "rsplit")?)
            }
            "splitlines" => Value::from(split_lines(text, bind(&["keepends"])?.get(0).is_some_and(Value::is_true))),
            "isspace" => Value::from(!text.is_empty() && text.chars().all(is_space)),
            "removeprefix" => {
                let args = bind(&["prefix"])?;
                Value::from(text.strip_prefix(args.needed(0)?).unwrap_or(text))
            }
            "removesuffix" => {
                let args = bind(&["suffix"])?;
                Value::from(text.strip_suffix(args.needed(0)?).unwrap_or(text))
            }
            "find" | "rfind" => Value::from(find(text, &bind(&["sub", "start", "end"])?, method == "rfind")?),
            "index" | "rindex" => match find(text, &bind(&["sub", "start", "end"])?, method == "rindex")? {
                -1 => return Err(Error::new(ErrorKind::InvalidOperation, "substring not found")),
                at => Value::from(at),
            },
            "count" => {
                let args = bind(&["sub", "start", "end"])?;
                let what = args.needed(0)?;
                let part = between(text, args.integer(1)?, args.integer(2)?).map_or("", |(_, part)| part);
                Value::from(part.matches(what).count())
            }
            "startswith" => Value::from(affix(text, &bind(&["prefix", "start", "end"])?, false)?),
            "endswith" => Value::from(affix(text, &bind(&["suffix", "start", "end"])?, true)?),
            "partition" | "rpartition" => partition(text, bind(&["sep"])?.needed(0)?, method == "rpartition")?,
            "zfill" | "ljust" | "rjust" | "center" => {
                let args = bind(&["width", "fillchar"])?;
                let width = args.integer(0)?.ok_or_else(|| Error::from(ErrorKind::MissingArgument))?;
                Value::from(pad(text, width, args.text(1)?.unwrap_or(" "), method)?)
            }
            "swapcase" => Value::from(swap_case(text)),
            "casefold" => Value::from(text.to_lowercase().replace('ß', "ss")),
            "title" => Value::from(title(text)),
            "capitalize" => Value::from(capitalize(text)),
            "join" => {
                let items = args.first().ok_or_else(|| Error::from(ErrorKind::MissingArgument))?;
                let mut out = String::new();
                for (at, item) in items.try_iter()?.checked().enumerate() {
                    let item = item?;
                    let item = item.as_str().ok_or_else(|| wrong_type("a string in join()", &item))?;
                    // Joining repeats the separator: it is paid for like any text the template makes.
                    state.consume_fuel(((text.len() + item.len()) / 64) as u64)?;
                    if at > 0 {
                        out.push_str(text);
                    }
                    out.push_str(item);
                }
                Value::from(out)
            }
            _ => return Err(Error::from(ErrorKind::UnknownMethod)),
        })
    };
    match outcome() {
        Err(error) if error.kind() == ErrorKind::UnknownMethod => None,
        other => Some(other),
    }
}

fn sequence_method(list: &Value, method: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    match method {
        "index" => Some((|| {
            let args = Bound::new(method, args, &["value"])?;
            let wanted = args.given(0).cloned().unwrap_or_default();
            for (at, item) in list.try_iter()?.checked().enumerate() {
                if item? == wanted {
                    return Ok(Value::from(at));
                }
            }
            let message = format!("{} is not in list", py_value::to_str(&wanted)?);
            Err(Error::new(ErrorKind::InvalidOperation, message))
        })()),
        "copy" => Some(Ok(list.clone())),
        _ => None,
    }
}

/// The callback for methods that minijinja does not know.
pub fn call_method(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let ours = match value.kind() {
        ValueKind::String => value.as_str().and_then(|text| string_method(state, text, method, args)),
        ValueKind::Seq => sequence_method(value, method, args),
        ValueKind::Map if method == "copy" && args.is_empty() => Some(Ok(value.clone())),
        _ => None,
    };
    ours.unwrap_or_else(|| minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args))
}
