//! The extern functions. Nothing here decides anything: bytes in, a call, an owned result out.

use std::cell::RefCell;
use std::ffi::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::Once;

use crate::template::{ChatTemplate, RenderInput};
use crate::tokenizer::Tokenizer;
use crate::{strftime, Code, Failure};

const ABI_VERSION: u32 = 1;
const ADD_SPECIAL: u32 = 1;
const PARSE_SPECIAL: u32 = 2;

/// Mirrors `tk_result`. `owner` is a boxed `Owned`, whose buffers `text` and `ids` point into.
#[repr(C)]
pub struct TkResult {
    status: i32,
    text: *const u8,
    text_size: usize,
    ids: *const u32,
    ids_size: usize,
    owner: *mut c_void,
}

struct Owned {
    _text: Vec<u8>,
    _ids: Vec<u32>,
}

enum Outcome {
    Nothing,
    Text(String),
    Ids(Vec<u32>),
}

/// # Safety
/// `result` must be writable; what it held before is overwritten, not freed.
unsafe fn deliver(result: *mut TkResult, status: i32, text: Vec<u8>, ids: Vec<u32>) {
    let mut filled = TkResult {
        status,
        text: text.as_ptr(),
        text_size: text.len(),
        ids: ids.as_ptr(),
        ids_size: ids.len(),
        owner: ptr::null_mut(),
    };
    // Moving a Vec leaves its heap buffer where it is, so the pointers above stay good.
    filled.owner = Box::into_raw(Box::new(Owned { _text: text, _ids: ids })).cast();
    result.write(filled);
}

thread_local! {
    static PANIC_PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The crate's folder and the file in it, without where the crates lie on the machine that built this.
fn tail_of(path: &str) -> &str {
    let start = path.find("/registry/src/").and_then(|at| path[at + 14..].find('/').map(|next| at + 14 + next + 1));
    &path[start.unwrap_or(0)..]
}

/// Replaces Rust's hook, which prints to stderr: a library does not print, and the message travels in the result.
fn install_quiet_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            let place = info.location().map(|l| format!("{}:{}", tail_of(l.file()), l.line())).unwrap_or_default();
            PANIC_PLACE.with(|cell| *cell.borrow_mut() = place);
        }));
    });
}

/// Runs `body` so that neither an error nor a panic leaves this function, and writes the outcome to `result`. A panic is
/// reported as `panic_code`.
unsafe fn guarded(result: *mut TkResult, panic_code: Code, body: impl FnOnce() -> Result<Outcome, Failure>) {
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        let text = payload
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| payload.downcast_ref::<&str>().map(|s| s.to_string()))
            .unwrap_or_else(|| "no message".to_string());
        let place = PANIC_PLACE.with(|cell| cell.borrow().clone());
        Err(Failure::new(panic_code, format!("{text} (panic at {place})")))
    });
    match outcome {
        Ok(Outcome::Nothing) => deliver(result, 0, Vec::new(), Vec::new()),
        Ok(Outcome::Text(text)) => deliver(result, 0, text.into_bytes(), Vec::new()),
        Ok(Outcome::Ids(ids)) => deliver(result, 0, Vec::new(), ids),
        Err(failure) => {
            // Messages of the C regular-expression library may hold bytes of a pattern cut anywhere.
            let message = String::from_utf8_lossy(failure.message.as_bytes()).into_owned();
            deliver(result, failure.code as i32, message.into_bytes(), Vec::new());
        }
    }
}

unsafe fn bytes<'a>(data: *const u8, size: usize) -> &'a [u8] {
    if size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, size)
    }
}

unsafe fn utf8<'a>(data: *const u8, size: usize, what: &str) -> Result<&'a str, Failure> {
    std::str::from_utf8(bytes(data, size)).map_err(|error| {
        Failure::new(Code::Invalid, format!("{what} is not UTF-8: first bad byte at offset {}", error.valid_up_to()))
    })
}

#[no_mangle]
pub extern "C" fn tk_abi_version() -> u32 {
    install_quiet_hook();
    ABI_VERSION
}

/// # Safety
/// `result` is null or was filled by a function of this library and not freed since.
#[no_mangle]
pub unsafe extern "C" fn tk_result_free(result: *mut TkResult) {
    if result.is_null() || (*result).owner.is_null() {
        return;
    }
    drop(Box::from_raw((*result).owner.cast::<Owned>()));
    (*result).owner = ptr::null_mut();
    (*result).text = ptr::null();
    (*result).text_size = 0;
    (*result).ids = ptr::null();
    (*result).ids_size = 0;
}

/// # Safety
/// `json` has `size` readable bytes; `out` and `result` are writable.
#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_new(
    json: *const u8,
    size: usize,
    out: *mut *mut Tokenizer,
    result: *mut TkResult,
) {
    *out = ptr::null_mut();
    // The parser asserts here and there instead of refusing: what it panics over is the file.
    guarded(result, Code::Corrupt, || {
        let tokenizer = Tokenizer::from_json(bytes(json, size))?;
        *out = Box::into_raw(Box::new(tokenizer));
        Ok(Outcome::Nothing)
    });
}

/// # Safety
/// `tokenizer` is null or came from `tk_tokenizer_new` and was not freed since.
#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_free(tokenizer: *mut Tokenizer) {
    if !tokenizer.is_null() {
        // A destructor that panics has nobody left to tell.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(tokenizer))));
    }
}

/// # Safety
/// `tokenizer` is a live handle, `text` has `size` readable bytes, `result` is writable.
#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_encode(
    tokenizer: *const Tokenizer,
    text: *const u8,
    size: usize,
    flags: u32,
    result: *mut TkResult,
) {
    guarded(result, Code::Internal, || {
        let text = utf8(text, size, "text")?;
        (*tokenizer).encode(text, flags & ADD_SPECIAL != 0, flags & PARSE_SPECIAL != 0).map(Outcome::Ids)
    });
}

/// # Safety
/// `tokenizer` is a live handle, `ids` has `count` readable values, `result` is writable.
#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_decode(
    tokenizer: *const Tokenizer,
    ids: *const u32,
    count: usize,
    skip_special: i32,
    result: *mut TkResult,
) {
    guarded(result, Code::Internal, || {
        let ids = if count == 0 { &[] } else { std::slice::from_raw_parts(ids, count) };
        (*tokenizer).decode(ids, skip_special != 0).map(Outcome::Text)
    });
}

/// # Safety
/// `tokenizer` is a live handle, `token` has `size` readable bytes.
#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_token_to_id(tokenizer: *const Tokenizer, token: *const u8, size: usize) -> i64 {
    catch_unwind(AssertUnwindSafe(|| {
        let token = std::str::from_utf8(bytes(token, size)).ok()?;
        (*tokenizer).token_to_id(token)
    }))
    .ok()
    .flatten()
    .map_or(-1, i64::from)
}

/// Mirrors `tk_token_table`.
#[repr(C)]
pub struct TkTokenTable {
    count: usize,
    flags: *const u8,
    token: *const u8,
    token_offset: *const u32,
    bytes: *const u8,
    bytes_offset: *const u32,
    decoding: i32,
    strip: *const u8,
    strip_size: usize,
    strip_count: u32,
}

/// # Safety
/// `tokenizer` is a live handle, `table` is writable.
#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_table(tokenizer: *const Tokenizer, table: *mut TkTokenTable) {
    let source = (*tokenizer).table();
    table.write(TkTokenTable {
        count: source.flags.len(),
        flags: source.flags.as_ptr(),
        token: source.token.as_ptr(),
        token_offset: source.token_offset.as_ptr(),
        bytes: source.bytes.as_ptr(),
        bytes_offset: source.bytes_offset.as_ptr(),
        decoding: source.decoding as i32,
        strip: source.strip.as_ptr(),
        strip_size: source.strip.len(),
        strip_count: source.strip_count,
    });
}

/// Mirrors `tk_text`.
#[repr(C)]
pub struct TkText {
    data: *const u8,
    size: usize,
}

/// # Safety
/// The texts are readable; `out` and `result` are writable.
#[no_mangle]
pub unsafe extern "C" fn tk_template_new(
    source: TkText,
    special_tokens: TkText,
    fuel: u64,
    max_output: usize,
    out: *mut *mut ChatTemplate,
    result: *mut TkResult,
) {
    *out = ptr::null_mut();
    guarded(result, Code::Corrupt, || {
        let source = std::str::from_utf8(bytes(source.data, source.size)).map_err(|error| {
            let at = error.valid_up_to();
            Failure::new(Code::Corrupt, format!("the chat template is not UTF-8: first bad byte at offset {at}"))
        })?;
        let special_tokens = utf8(special_tokens.data, special_tokens.size, "special tokens")?;
        *out = Box::into_raw(Box::new(ChatTemplate::compile(source, special_tokens, fuel, max_output)?));
        Ok(Outcome::Nothing)
    });
}

/// # Safety
/// `chat_template` is null or came from `tk_template_new` and was not freed since.
#[no_mangle]
pub unsafe extern "C" fn tk_template_free(chat_template: *mut ChatTemplate) {
    if !chat_template.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(chat_template))));
    }
}

/// Mirrors `tk_render_input`.
#[repr(C)]
pub struct TkRenderInput {
    messages: TkText,
    tools: TkText,
    documents: TkText,
    variables: TkText,
    add_generation_prompt: i32,
    now: strftime::BrokenDownTime,
}

/// # Safety
/// `chat_template` is a live handle, the texts of `input` are readable, `result` is writable.
#[no_mangle]
pub unsafe extern "C" fn tk_template_render(
    chat_template: *const ChatTemplate,
    input: *const TkRenderInput,
    result: *mut TkResult,
) {
    guarded(result, Code::Internal, || {
        let input = &*input;
        let rendered = (*chat_template).render(&RenderInput {
            messages: utf8(input.messages.data, input.messages.size, "messages")?,
            tools: utf8(input.tools.data, input.tools.size, "tools")?,
            documents: utf8(input.documents.data, input.documents.size, "documents")?,
            variables: utf8(input.variables.data, input.variables.size, "template variables")?,
            add_generation_prompt: input.add_generation_prompt != 0,
            now: input.now,
        })?;
        Ok(Outcome::Text(rendered))
    });
}
