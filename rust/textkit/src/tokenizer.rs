//! One tokenizer.json as an immutable object.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokenizers::models::{ModelWrapper, TrainerWrapper};
use tokenizers::tokenizer::{Model, Token, TokenizerImpl};
use tokenizers::{DecoderWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper};

use crate::decoding::TokenTable;
use crate::{Code, Failure};

/// A model that two tokenizers share, so that the vocabulary is held once.
#[derive(Clone)]
struct SharedModel(Arc<ModelWrapper>);

impl Model for SharedModel {
    type Trainer = TrainerWrapper;
    fn tokenize(&self, sequence: &str) -> tokenizers::Result<Vec<Token>> {
        self.0.tokenize(sequence)
    }
    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.0.token_to_id(token)
    }
    fn id_to_token(&self, id: u32) -> Option<String> {
        self.0.id_to_token(id)
    }
    fn get_vocab(&self) -> HashMap<String, u32> {
        self.0.get_vocab()
    }
    fn get_vocab_size(&self) -> usize {
        self.0.get_vocab_size()
    }
    fn save(&self, folder: &Path, prefix: Option<&str>) -> tokenizers::Result<Vec<PathBuf>> {
        self.0.save(folder, prefix)
    }
    fn get_trainer(&self) -> TrainerWrapper {
        self.0.get_trainer()
    }
}

pub(crate) type ParsedTokenizer =
    TokenizerImpl<ModelWrapper, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;
type Shared = TokenizerImpl<SharedModel, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;

pub struct Tokenizer {
    /// Special tokens written in the text are recognised.
    parsing: Shared,
    /// They are ordinary text. The library keeps this choice in the tokenizer, not in the call: hence two of them.
    literal: Shared,
    table: TokenTable,
}

impl Tokenizer {
    pub fn from_json(json: &[u8]) -> Result<Tokenizer, Failure> {
        let parsed = ParsedTokenizer::from_bytes(json)
            .map_err(|error| Failure::new(Code::Corrupt, format!("not a tokenizer.json: {error}")))?;
        let table = TokenTable::build(&parsed)?;

        let model = SharedModel(Arc::new(parsed.get_model().clone()));
        let make = |encode_special_as_text: bool| -> Result<Shared, Failure> {
            let mut made = Shared::new(model.clone());
            // Truncation and padding of the file are left out: a prompt is never cut silently.
            made.with_normalizer(parsed.get_normalizer().cloned())
                .map_err(|error| Failure::new(Code::Corrupt, format!("normalizer: {error}")))?;
            made.with_pre_tokenizer(parsed.get_pre_tokenizer().cloned());
            made.with_post_processor(parsed.get_post_processor().cloned());
            made.with_decoder(parsed.get_decoder().cloned());
            made.with_added_vocabulary(parsed.get_added_vocabulary().clone());
            made.set_encode_special_tokens(encode_special_as_text);
            Ok(made)
        };
        let tokenizer = Tokenizer { parsing: make(false)?, literal: make(true)?, table };
        tokenizer.probe()?;
        Ok(tokenizer)
    }

    /// Encodes a little of everything once: a file whose parts contradict each other (a post-processor or an unknown token
    /// that the vocabulary lacks) shows here and not with the first request.
    fn probe(&self) -> Result<(), Failure> {
        let text = "Probe 012  \n\t'll \u{e9}e\u{301} \u{65e5}\u{672c} \u{1f600}\u{10fffd}\u{0}.";
        for parse_special in [true, false] {
            let ids = self.encode(text, true, parse_special).and_then(|ids| self.decode(&ids, false).map(|_| ids));
            let ids =
                ids.map_err(|failure| Failure::new(Code::Corrupt, format!("tokenizer.json: {}", failure.message)))?;
            if let Some(id) = ids.iter().find(|id| !self.table.has(**id)) {
                let message = format!("tokenizer.json: it adds the id {id}, which has no token");
                return Err(Failure::new(Code::Corrupt, message));
            }
        }
        Ok(())
    }

    pub fn encode(&self, text: &str, add_special: bool, parse_special: bool) -> Result<Vec<u32>, Failure> {
        let tokenizer = if parse_special { &self.parsing } else { &self.literal };
        let encoding = tokenizer
            .encode_fast(text, add_special)
            .map_err(|error| Failure::new(Code::Invalid, format!("the text cannot be tokenised: {error}")))?;
        Ok(encoding.get_ids().to_vec())
    }

    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, Failure> {
        self.parsing
            .decode(ids, skip_special)
            .map_err(|error| Failure::new(Code::Internal, format!("the ids cannot be decoded: {error}")))
    }

    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.parsing.token_to_id(token)
    }

    pub fn table(&self) -> &TokenTable {
        &self.table
    }
}

const _: () = {
    const fn shareable<T: Send + Sync>() {}
    shareable::<Tokenizer>();
};
