//! Hugging Face tokenizers and chat templates behind the C interface of `include/textkit.h`.
//!
//! Rules of the boundary: every extern function catches panics (a panic that crossed into C++ would end the process),
//! takes borrowed bytes it never keeps, and hands results over as owned objects with their own free. Handles are
//! immutable, so any number of threads may share one.

mod decoding;
mod ffi;
mod generation_tag;
mod py_args;
mod py_filters;
mod py_str;
mod py_value;
mod strftime;
mod template;
mod tokenizer;

/// Mirrors `enum tk_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    Invalid = 1,
    Corrupt = 2,
    Unsupported = 3,
    Exhausted = 4,
    Internal = 5,
}

/// What every fallible function below the boundary returns: a code and one sentence for the user.
#[derive(Debug)]
pub struct Failure {
    pub code: Code,
    pub message: String,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }
}
