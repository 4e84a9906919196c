//! Arguments of Python calls: positional, by keyword, optional, None.

use minijinja::value::{Kwargs, Rest, Value};
use minijinja::{Error, ErrorKind};

/// Arguments of a Python call bound to parameter names.
pub struct Bound {
    values: Vec<Option<Value>>,
}

impl Bound {
    pub fn new(method: &str, args: &[Value], names: &[&str]) -> Result<Bound, Error> {
        let (positional, kwargs) = match args.split_last() {
            Some((last, rest)) if last.is_kwargs() => (rest, Some(Kwargs::try_from(last.clone())?)),
            _ => (args, None),
        };
        if positional.len() > names.len() {
            return Err(Error::new(
                ErrorKind::TooManyArguments,
                format!("{method}() takes at most {} arguments ({} given)", names.len(), positional.len()),
            ));
        }
        let mut values: Vec<Option<Value>> = names.iter().map(|_| None).collect();
        for (slot, value) in values.iter_mut().zip(positional) {
            *slot = Some(value.clone());
        }
        if let Some(kwargs) = kwargs {
            for (slot, name) in values.iter_mut().zip(names) {
                if let Some(value) = kwargs.get::<Option<Value>>(name)? {
                    *slot = Some(value);
                }
            }
            kwargs.assert_all_used()?;
        }
        Ok(Bound { values })
    }

    /// For filters and functions, which get the keyword arguments apart.
    pub fn of_filter(name: &str, args: Rest<Value>, kwargs: Kwargs, names: &[&str]) -> Result<Bound, Error> {
        let mut all = args.0;
        all.push(Value::from(kwargs));
        Bound::new(name, &all, names)
    }

    /// None for an argument that was left out.
    pub fn given(&self, at: usize) -> Option<&Value> {
        self.values[at].as_ref()
    }

    /// None for an argument that was left out or is None.
    pub fn get(&self, at: usize) -> Option<&Value> {
        self.values[at].as_ref().filter(|v| !v.is_none())
    }

    pub fn text(&self, at: usize) -> Result<Option<&str>, Error> {
        match self.get(at) {
            None => Ok(None),
            Some(value) => match value.as_str() {
                Some(text) => Ok(Some(text)),
                None => Err(wrong_type("a string", value)),
            },
        }
    }

    pub fn flag(&self, at: usize) -> bool {
        self.get(at).is_some_and(Value::is_true)
    }

    pub fn needed(&self, at: usize) -> Result<&str, Error> {
        self.text(at)?.ok_or_else(|| Error::new(ErrorKind::MissingArgument, "a string argument is missing"))
    }

    pub fn integer(&self, at: usize) -> Result<Option<i64>, Error> {
        match self.get(at) {
            None => Ok(None),
            Some(value) => value.as_i64().map(Some).ok_or_else(|| wrong_type("an integer", value)),
        }
    }
}

pub fn wrong_type(wanted: &str, value: &Value) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("expected {wanted}, found a value of kind {}", value.kind()))
}
