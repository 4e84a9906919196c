//! `{% generation %}` … `{% endgeneration %}` marks assistant text for training masks. For rendering it is a block with
//! a scope of its own, which `{% with %}` … `{% endwith %}` is: the tags are renamed before parsing, and nothing else
//! changes, so that line numbers and whitespace control stay.

/// The end of the tag or comment that starts at `from`: the offset just behind `close`, strings inside skipped when
/// `quotes` says that the language has them there.
fn end_of(source: &str, from: usize, close: &str, quotes: bool) -> usize {
    let bytes = source.as_bytes();
    let mut at = from + 2;
    while at < bytes.len() {
        if source.as_bytes()[at..].starts_with(close.as_bytes()) {
            return at + close.len();
        }
        let c = bytes[at];
        if quotes && (c == b'"' || c == b'\'') {
            at += 1;
            while at < bytes.len() && bytes[at] != c {
                at += if bytes[at] == b'\\' { 2 } else { 1 };
            }
        }
        at += 1;
    }
    bytes.len()
}

/// The first word of a block tag, without whitespace control marks.
fn word(tag: &str) -> &str {
    let inner = tag.get(2..tag.len().saturating_sub(2)).unwrap_or("");
    inner.trim_matches(|c: char| c == '-' || c == '+' || c.is_whitespace())
}

pub fn rename(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut copied = 0; // everything before this offset is in `out`
    let mut at = 0;
    let mut raw = false;
    while let Some(found) = source[at..].find('{') {
        let start = at + found;
        let rest = &source[start..];
        if raw || rest.starts_with("{%") {
            if !rest.starts_with("{%") {
                at = start + 1;
                continue;
            }
            let end = end_of(source, start, "%}", !raw);
            let tag = &source[start..end];
            match word(tag) {
                "raw" => raw = true,
                "endraw" => raw = false,
                "generation" | "endgeneration" if !raw => {
                    let name = word(tag);
                    let name_at = start + tag.find(name).unwrap_or(0);
                    out.push_str(&source[copied..name_at]);
                    out.push_str(if name == "generation" { "with" } else { "endwith" });
                    copied = name_at + name.len();
                }
                _ => {}
            }
            // Inside raw only an endraw tag counts; other text that looks like a tag must not swallow it.
            at = if raw && word(tag) != "raw" { start + 2 } else { end };
        } else if rest.starts_with("{#") {
            at = end_of(source, start, "#}", false);
        } else if rest.starts_with("{{") {
            at = end_of(source, start, "}}", true);
        } else {
            at = start + 1;
        }
    }
    out.push_str(&source[copied..]);
    out
}
