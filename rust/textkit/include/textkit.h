/* C interface of the Rust crate textkit: Hugging Face tokenizers and chat templates (minijinja).
 *
 * Included by the .cc files of src/text/ alone; everybody else uses text/tokenizer.h and text/chat_template.h.
 * Handles are immutable once made and may be used from any number of threads at once. Every text is UTF-8 with an explicit
 * length and without a terminating zero. No function keeps a pointer it was given, none panics or throws across this
 * boundary, and none prints. Keep in step with src/ffi.rs; TK_ABI_VERSION changes with every change of this file.
 */
#ifndef STERLING_TEXTKIT_H_
#define STERLING_TEXTKIT_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TK_ABI_VERSION 1u

/* What the archive was built with; compare with TK_ABI_VERSION before anything else. */
uint32_t tk_abi_version(void);

enum tk_status {
  TK_OK = 0,
  TK_INVALID = 1,     /* the request: text that is not UTF-8, messages a template refuses */
  TK_CORRUPT = 2,     /* the model's file: tokenizer.json or template that breaks its format */
  TK_UNSUPPORTED = 3, /* well formed, but nothing here can do it */
  TK_EXHAUSTED = 4,   /* a limit against runaway templates or texts */
  TK_INTERNAL = 5     /* a Rust panic, with its message */
};

/* Owned outcome of a call. On failure `text` is the message. Free it with tk_result_free whatever the status. */
typedef struct tk_result {
  int32_t status;
  const uint8_t* text;
  size_t text_size;
  const uint32_t* ids;
  size_t ids_size;
  void* owner;
} tk_result;
void tk_result_free(tk_result* result);

/* ---- tokenizers ---- */
typedef struct tk_tokenizer tk_tokenizer;

/* From the bytes of a tokenizer.json. On success *out is the handle, otherwise it is null. */
void tk_tokenizer_new(const uint8_t* json, size_t size, tk_tokenizer** out, tk_result* result);
void tk_tokenizer_free(tk_tokenizer* tokenizer);

enum tk_encode_flags {
  TK_ADD_SPECIAL = 1,  /* let the post-processor add BOS and the like */
  TK_PARSE_SPECIAL = 2 /* "<|im_end|>" in the text becomes the special token; otherwise it is ordinary text */
};
void tk_tokenizer_encode(const tk_tokenizer* tokenizer, const uint8_t* text, size_t size, uint32_t flags,
                         tk_result* result);

/* Ids without a token are skipped. */
void tk_tokenizer_decode(const tk_tokenizer* tokenizer, const uint32_t* ids, size_t count, int32_t skip_special,
                         tk_result* result);

/* The id of a token's exact string, or -1. */
int64_t tk_tokenizer_token_to_id(const tk_tokenizer* tokenizer, const uint8_t* token, size_t size);

enum tk_token_flags {
  TK_TOKEN_PRESENT = 1, /* the id has a token */
  TK_TOKEN_SPECIAL = 2, /* left out by skip_special */
  TK_TOKEN_BYTE = 4     /* one raw byte of a byte-fallback vocabulary */
};

enum tk_decoding {
  TK_DECODE_BYTES = 0,        /* concatenate the bytes; what is not UTF-8 becomes U+FFFD per maximal subpart */
  TK_DECODE_BYTE_FALLBACK = 1 /* runs of byte tokens are all or nothing: one bad byte turns each of the run into U+FFFD */
};

/* What each id contributes to decoded text; borrowed from the tokenizer, valid as long as it. */
typedef struct tk_token_table {
  size_t count;                 /* highest id + 1 */
  const uint8_t* flags;         /* [count] */
  const uint8_t* token;         /* the vocabulary's strings, one after the other */
  const uint32_t* token_offset; /* [count + 1] */
  const uint8_t* bytes;         /* the text bytes of each token, one after the other */
  const uint32_t* bytes_offset; /* [count + 1] */
  int32_t decoding;             /* tk_decoding */
  const uint8_t* strip;         /* one character dropped from the start of the whole text ... */
  size_t strip_size;
  uint32_t strip_count; /* ... at most this many times */
} tk_token_table;
void tk_tokenizer_table(const tk_tokenizer* tokenizer, tk_token_table* table);

/* ---- chat templates ---- */
typedef struct tk_template tk_template;

typedef struct tk_text {
  const uint8_t* data;
  size_t size;
} tk_text;

/* source: one template, or the JSON list [{"name": ..., "template": ...}, ...] with a "default" and perhaps a "tool_use".
 * special_tokens: JSON object of variables that every render sees, or empty.
 * fuel: about one unit per template instruction and per 64 bytes of text made; max_output in bytes. Both per render. */
void tk_template_new(tk_text source, tk_text special_tokens, uint64_t fuel, size_t max_output, tk_template** out,
                     tk_result* result);
void tk_template_free(tk_template* chat_template);

/* Broken-down local time, as struct tm has it: month 0..11, year - 1900, weekday 0 = Sunday. */
typedef struct tk_time {
  int32_t second, minute, hour, day, month, year, weekday, yearday;
} tk_time;

typedef struct tk_render_input {
  tk_text messages;  /* JSON list of objects */
  tk_text tools;     /* JSON list, or empty for none */
  tk_text documents; /* JSON list, or empty for none */
  tk_text variables; /* JSON object of further variables (enable_thinking, ...), or empty; they win over the special tokens */
  int32_t add_generation_prompt;
  tk_time now;
} tk_render_input;
void tk_template_render(const tk_template* chat_template, const tk_render_input* input, tk_result* result);

#ifdef __cplusplus
}
#endif

#endif /* STERLING_TEXTKIT_H_ */
