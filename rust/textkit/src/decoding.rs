//! What every id contributes to decoded text, worked out once from the tokenizer's decoder, so that streaming needs no
//! call into this library and its cost per token does not grow with the text.
//!
//! Two kinds of decoder cover the language models that exist as tokenizer.json:
//! * byte level (GPT-2 and its descendants): tokens spell bytes, the concatenation is read as UTF-8 with U+FFFD for
//!   what is not;
//! * replace, byte fallback, fuse, strip (SentencePiece descendants): tokens are text, `<0xNN>` tokens are bytes whose
//!   runs are UTF-8 or turn into U+FFFD whole, and some leading characters of the whole text are dropped.
//!
//! Anything else is refused by name instead of being decoded approximately.

use serde_json::Value;
use tokenizers::tokenizer::{Decoder, Model};
use tokenizers::DecoderWrapper;

use crate::tokenizer::ParsedTokenizer;
use crate::{Code, Failure};

pub const PRESENT: u8 = 1;
pub const SPECIAL: u8 = 2;
pub const BYTE: u8 = 4;

/// The largest id taken: far above every vocabulary, and it bounds the table that a hostile file can ask for.
const MAX_ID: u32 = (1 << 22) - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Decoding {
    Bytes = 0,
    ByteFallback = 1,
}

pub struct TokenTable {
    pub flags: Vec<u8>,
    pub token: Vec<u8>,
    pub token_offset: Vec<u32>,
    pub bytes: Vec<u8>,
    pub bytes_offset: Vec<u32>,
    pub decoding: Decoding,
    pub strip: String,
    pub strip_count: u32,
}

/// The decoder of a file, understood.
struct Plan {
    decoding: Decoding,
    /// Steps that map one token to its text, in order.
    per_token: Vec<DecoderWrapper>,
    strip: String,
    strip_count: u32,
}

fn unsupported(what: &str) -> Failure {
    Failure::new(
        Code::Unsupported,
        format!(
            "tokenizer.json: decoder {what} is not supported; accepted: ByteLevel, or a Sequence of Replace, \
             ByteFallback, Fuse and a Strip at the start"
        ),
    )
}

fn plan(decoder: Option<&DecoderWrapper>) -> Result<Plan, Failure> {
    let mut plan = Plan { decoding: Decoding::Bytes, per_token: Vec::new(), strip: String::new(), strip_count: 0 };
    let steps: Vec<DecoderWrapper> = match decoder {
        None => return Err(unsupported("null (tokens joined by spaces)")),
        Some(DecoderWrapper::ByteLevel(_)) => return Ok(plan),
        Some(DecoderWrapper::Sequence(sequence)) => sequence.get_decoders().to_vec(),
        Some(other) => vec![other.clone()],
    };
    if let [DecoderWrapper::ByteLevel(_)] = steps.as_slice() {
        return Ok(plan);
    }
    plan.decoding = Decoding::ByteFallback;
    let (mut bytes_seen, mut fused) = (false, false);
    for step in steps {
        match &step {
            DecoderWrapper::Replace(_) if !bytes_seen && !fused => plan.per_token.push(step),
            DecoderWrapper::ByteFallback(_) if !bytes_seen && !fused => bytes_seen = true,
            DecoderWrapper::Fuse(_) if !fused => fused = true,
            DecoderWrapper::Strip(strip) if fused && strip.stop == 0 && plan.strip_count == 0 => {
                plan.strip = strip.content.to_string();
                plan.strip_count = u32::try_from(strip.start).unwrap_or(u32::MAX);
            }
            other => return Err(unsupported(&describe(other))),
        }
    }
    if !fused || !bytes_seen {
        return Err(unsupported("without Fuse or without ByteFallback"));
    }
    Ok(plan)
}

fn describe(decoder: &DecoderWrapper) -> String {
    let json = serde_json::to_value(decoder).unwrap_or(Value::Null);
    let name = json.get("type").and_then(Value::as_str).unwrap_or("of unknown type").to_string();
    match decoder {
        DecoderWrapper::Replace(_)
        | DecoderWrapper::ByteFallback(_)
        | DecoderWrapper::Fuse(_)
        | DecoderWrapper::Strip(_) => format!("{name} at this place of the sequence"),
        _ => name,
    }
}

/// The byte behind `<0x41>`, by the rule of the library's ByteFallback decoder.
fn fallback_byte(token: &str) -> Option<u8> {
    if token.len() == 6 && token.starts_with("<0x") && token.ends_with('>') && token.is_char_boundary(5) {
        u8::from_str_radix(&token[3..5], 16).ok()
    } else {
        None
    }
}

/// GPT-2's table from characters to bytes: printable Latin-1 stands for itself, the other 68 bytes for U+0100 onwards.
pub fn char_to_byte(c: char) -> Option<u8> {
    fn printable(b: u8) -> bool {
        matches!(b, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF)
    }
    match c as u32 {
        code @ 0..=0xFF => Some(code as u8).filter(|b| printable(*b)),
        code @ 0x100..=0x143 => (0..=255u8).filter(|b| !printable(*b)).nth((code - 0x100) as usize),
        _ => None,
    }
}

impl TokenTable {
    pub fn has(&self, id: u32) -> bool {
        self.flags.get(id as usize).is_some_and(|flags| flags & PRESENT != 0)
    }

    pub fn build(tokenizer: &ParsedTokenizer) -> Result<TokenTable, Failure> {
        let plan = plan(tokenizer.get_decoder())?;
        let added = tokenizer.get_added_vocabulary();
        let model = tokenizer.get_model();

        let mut ids: Vec<u32> = model.get_vocab().into_values().collect();
        ids.extend(added.get_added_tokens_decoder().keys());
        let highest = match ids.iter().max() {
            Some(id) if *id > MAX_ID => {
                let message = format!("tokenizer.json: token id {id}; accepted: 0 to {MAX_ID}");
                return Err(Failure::new(Code::Corrupt, message));
            }
            Some(id) => *id as usize,
            None => return Err(Failure::new(Code::Corrupt, "tokenizer.json: the vocabulary is empty")),
        };

        let mut reverse = [None; 0x144];
        for (code, slot) in reverse.iter_mut().enumerate() {
            *slot = char::from_u32(code as u32).and_then(char_to_byte);
        }
        let mut table = TokenTable {
            flags: vec![0; highest + 1],
            token: Vec::new(),
            token_offset: vec![0],
            bytes: Vec::new(),
            bytes_offset: vec![0],
            decoding: plan.decoding,
            strip: plan.strip.clone(),
            strip_count: plan.strip_count,
        };
        for id in 0..=highest as u32 {
            // Decoding reads the normalised form of an added token where the library keeps one.
            if let Some(token) = added.simple_id_to_token(id).or_else(|| model.id_to_token(id)) {
                let flags = &mut table.flags[id as usize];
                *flags = PRESENT;
                if added.is_special_token(&token) {
                    *flags |= SPECIAL;
                }
                match plan.decoding {
                    Decoding::Bytes => append_byte_level(&token, &reverse, &mut table.bytes),
                    Decoding::ByteFallback => {
                        let text = replace_all(&plan.per_token, &token)?;
                        match fallback_byte(&text) {
                            Some(byte) => {
                                *flags |= BYTE;
                                table.bytes.push(byte);
                            }
                            None => table.bytes.extend_from_slice(text.as_bytes()),
                        }
                    }
                }
                let spelled = added.get_added_tokens_decoder().get(&id).map(|t| t.content.clone()).unwrap_or(token);
                table.token.extend_from_slice(spelled.as_bytes());
            }
            table.token_offset.push(offset(table.token.len())?);
            table.bytes_offset.push(offset(table.bytes.len())?);
        }
        Ok(table)
    }
}

fn offset(size: usize) -> Result<u32, Failure> {
    u32::try_from(size).map_err(|_| Failure::new(Code::Corrupt, "tokenizer.json: the vocabulary is larger than 4 GiB"))
}

/// A token in which one character stands for no byte is not byte-level text (an added token with a space): its UTF-8 is
/// taken as it is.
fn append_byte_level(token: &str, reverse: &[Option<u8>; 0x144], out: &mut Vec<u8>) {
    let start = out.len();
    for c in token.chars() {
        match reverse.get(c as usize).copied().flatten() {
            Some(byte) => out.push(byte),
            None => {
                out.truncate(start);
                out.extend_from_slice(token.as_bytes());
                return;
            }
        }
    }
}

fn replace_all(steps: &[DecoderWrapper], token: &str) -> Result<String, Failure> {
    let mut text = vec![token.to_string()];
    for step in steps {
        text = step
            .decode_chain(text)
            .map_err(|error| Failure::new(Code::Corrupt, format!("tokenizer.json: decoder: {error}")))?;
    }
    Ok(text.concat())
}
