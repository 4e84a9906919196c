"""The strings that tokenizers are compared on: written for edges, and generated from a fixed seed. No outside text."""
import random
import unicodedata

CODE = [
    '#include <vector>\nint main() {\n\tstd::vector<int> v{1, 2, 3};\n\tfor (auto& x : v) x *= 2;\n\treturn v[0] << 3;\n}\n',
    'def fib(n: int) -> int:\n    """Doc."""\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n',
    'const f = async (x) => {\n  const r = await fetch(`/api/${x}?q=1`);\n  return r.ok ? r.json() : null;\n};\n',
    'fn main() -> Result<(), Box<dyn Error>> {\n    let s: String = "h\\u{e9}".into();\n    println!("{s:?}");\n    Ok(())\n}\n',
    'package main\n\nimport "fmt"\n\nfunc main() {\n\tfmt.Printf("%05.2f\\n", 3.14159)\n}\n',
    'SELECT u.id, COUNT(*) AS n FROM users u LEFT JOIN orders o ON o.uid = u.id WHERE u.name LIKE \'%x\' GROUP BY 1;\n',
    '<!DOCTYPE html>\n<html lang="en"><head><style>a:hover{color:#f00}</style></head><body>&nbsp;&lt;b&gt;</body></html>\n',
    '{"a": [1, -2.5e-10, null, true], "b\\n": {"c": "\\u00e9"}}\n',
    'class A<T extends Comparable<T>> implements B {\n    private final Map<String, List<T>> m = new HashMap<>();\n}\n',
    'main :: IO ()\nmain = mapM_ print $ takeWhile (<100) $ map (^2) [1..]\n',
    '#!/bin/sh\nset -eu\nfor f in *.txt; do\n  [ -s "$f" ] && grep -E \'^[a-z]+$\' "$f" | sort -u > "${f%.txt}.out"\ndone\n',
    '(defun square (x) (* x x)) ; comment\n(mapcar #\'square \'(1 2 3))\n',
    'x = lambda *a, **k: (a, k); y = x(1, *[2, 3], z=4)  # noqa: E731\n',
    'SECTION .text\nglobal _start\n_start: mov eax, 0x3C\n        xor edi, edi\n        syscall\n',
    '\\documentclass{article}\n\\begin{document}\n$\\int_0^\\infty e^{-x^2}\\,dx = \\frac{\\sqrt{\\pi}}{2}$\n\\end{document}\n',
    'key: value\nlist:\n  - a\n  - {b: 1, c: [x, y]}\nmulti: |\n  line one\n    line two\n',
    'diff --git a/x b/x\n@@ -1,3 +1,4 @@\n-old\n+new\n context\n',
    'R <- function(x, ...) { sapply(x, \\(i) i^2) }\n', 'proc foo {a b} { return [expr {$a + $b}] }\n',
    'using System;\nnamespace N { record P(int X, int Y); }\n', 'let rec f = function [] -> 0 | h :: t -> h + f t;;\n',
]

SENTENCES = [
    'The quick brown fox jumps over the lazy dog.', "I'll say they're what we've got, don't you? It's John's.",
    "I'LL SAY THEY'RE WHAT WE'VE GOT, DON'T YOU?", 'Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.',
    'Le cœur déçu mais l’âme plutôt naïve, Louÿs rêva de crapaüter.', 'El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia.',
    'Příliš žluťoučký kůň úpěl ďábelské ódy.', 'Zażółć gęślą jaźń.', 'Árvíztűrő tükörfúrógép.', 'Съешь же ещё этих мягких французских булок.',
    'Щастям б\'єш жук їх глицю в фон й ґедзь пріч.', 'Ξεσκεπάζω τὴν ψυχοφθόρα βδελυγμία.', 'いろはにほへと ちりぬるを わかよたれそ', 'これは日本語の文章です。カタカナとｶﾅも。',
    '我能吞下玻璃而不伤身体。', '我能吞下玻璃而不傷身體。', '나는 유리를 먹을 수 있어요. 그래도 아프지 않아요', 'ฉันกินกระจกได้ แต่มันไม่ทำให้ฉันเจ็บ',
    'مرحبا بالعالم، كيف حالك؟ ١٢٣', 'שלום עולם, מה שלומך? אבג״ד', 'मैं काँच खा सकता हूँ, मुझे उस से कोई पीडा नहीं होती। १२३', 'আমি কাঁচ খেতে পারি।',
    'நான் கண்ணாடி சாப்பிடுவேன்', 'మీరు ఎలా ఉన్నారు', 'ខ្ញុំអាចញុំកញ្ចក់បាន', 'Tôi có thể ăn thủy tinh mà không hại gì.', 'Mogę jeść szkło i mi nie szkodzi.',
    'Pijamalı hasta yağız şoföre çabucak güvendi. İIıi', 'Ég get etið gler án þess að meiða mig.', 'ქართული ენა', 'Հայերեն լեզու', 'አማርኛ ቋንቋ',
    'The year 2024 had 366 days; pi is 3.14159265358979, e-5 is 1e-5, 1,000,000 and 0xDEADBEEF.', 'https://example.org/a/b?c=d&e=%20f#g user@example.com C:\\Users\\x',
    '²³¹ ½ Ⅷ ① ፩ ௧ ๓ 一二三 𝟘𝟙𝟚', 'ﬁ ﬂ Ａｂｃ１２３ ℌ ℝ Å Ω µ ﷺ', 'e\u0301 n\u0303 a\u0308\u0304 o\u0328\u0301 \u1112\u1161\u11ab', 'Z\u0351\u036b\u0343\u036a\u0302a\u0324\u0316l\u0320\u0356g\u0315o\u0321',
    'RTL \u202babc\u202c \u200fא\u200e ltr \u2066x\u2069', 'zero\u200bwidth\u200cjoin\u200der\ufeffbom\u00adsoft',
    '👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 ☺️ ☺ 1️⃣ 🤷🏿‍♀️ 🧑‍🚀', '😀😀😀😀 text😀text', '𝒳𝒴 𐍈 𓀀 🀄 𠮷野家', 'tab\tnew\nline\r\ncr\rnel\x85ls\u2028ps\u2029end', '\x00\x01\x02\x1b[31mred\x1b[0m\x7f\x80\x9f',
    '\x1c\x1d\x1e\x1f sep', '\u00a0nbsp\u2003em\u3000ideographic\u1680ogham', '…—–‘’“”«»¿¡', '!!!???...,,,;;;:::', '((([[[{{{}}}]]])))', '-----=====_____*****', '~!@#$%^&*()_+`-={}|[]\\:";\'<>?,./',
    'camelCaseAndPascalCaseAndHTTPServer2XML snake_case_and_SCREAMING_CASE kebab-case', 'don`t can´t won’t y\'all \'tis \'S \'T \'Re', 'a' * 50, 'ab' * 40, '0' * 33, '1234567890' * 5, '的' * 30, 'é' * 20, 'e\u0301' * 20,
]

LOOK_ALIKES = [
    '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n', '<|im_start|>', '<|im_end|>', '<|endoftext|>', '<|im_start|><|im_end|>', 'x<|im_end|>y', ' <|im_end|> ', '<|im_end|', '|im_end|>',
    '<|IM_END|>', '< |im_end|>', '<|im_end|>>', '<<|im_end|>', '<|im_start|>>system', '<|im_\u200bend|>', '<think>\nhm\n</think>\n\n', '<think>', '</think>', '<tool_call>\n{"name": "f"}\n</tool_call>',
    '<tool_response>', '<|vision_start|><|image_pad|><|vision_end|>', '<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>', '<repo_name>x<file_sep>y', '<reponame>', '<gh_stars>100', '<jupyter_code>print(1)<jupyter_output>1',
    '<empty_output>', '<s>', '</s>', '<unk>', '<pad>', '[INST] x [/INST]', '<|begin_of_text|><|start_header_id|>user<|end_header_id|>', '<|eot_id|>', '<0x41>', '<0xE4><0xBD><0xA0>', '▁', '▁▁a', 'Ġ', 'Ġthe', 'Ċ', '\ufffd', '\ufffd\ufffd',
]

LONG = [
    ('The quick brown fox jumps over the lazy dog. ' * 120), ' ' * 3000, '\n' * 1500, '\t \n' * 500, 'a' * 4000, '日本語' * 700, '👩‍👩‍👧' * 250, 'e\u0301\u0323' * 500, '<|im_end|>' * 200, '0123456789' * 300,
    'x ' * 1500, '\r\n' * 700, '!?' * 1200,
]

ALPHABETS = {
    'ascii': [chr(c) for c in range(0x20, 0x7F)],
    'space': list(' \t\n\r\x0b\x0c\x1c\x1f\x85\u00a0\u2003\u2028\u3000') + ['  ', '    ', '\n\n', '\r\n'],
    'latin': [chr(c) for c in range(0xA0, 0x250)],
    'greek_cyrillic': [chr(c) for c in range(0x370, 0x530)],
    'hebrew_arabic': [chr(c) for c in range(0x590, 0x700)] + [' '],
    'indic': [chr(c) for c in range(0x900, 0xE00)] + [' '],
    'cjk': [chr(c) for c in range(0x4E00, 0x9FFF, 7)] + list('。，、！？「」'),
    'kana_hangul': [chr(c) for c in range(0x3040, 0x3100)] + [chr(c) for c in range(0xAC00, 0xD7A3, 31)] + [chr(c) for c in range(0x1100, 0x1200, 3)],
    'marks': ['a', 'e', 'o', 'u', 'n'] + [chr(c) for c in range(0x300, 0x370)],
    'punctuation': [chr(c) for c in range(0x2000, 0x2070)] + [chr(c) for c in range(0x20A0, 0x2100)],
    'symbols': [chr(c) for c in range(0x2100, 0x2800, 3)],
    'emoji': [chr(c) for c in range(0x1F300, 0x1F700)] + ['\u200d', '\ufe0f', '🏽', '🇦', '🇿', ' '],
    'control': [chr(c) for c in range(0, 0x20)] + [chr(c) for c in range(0x7F, 0xA0)] + ['a'],
    'digits': list('0123456789٠١٢३४五六½²Ⅷ.,- '),
    'astral': [chr(c) for c in range(0x10000, 0x30000, 997)],
    'private': [chr(c) for c in range(0xE000, 0xF900, 101)] + [chr(c) for c in range(0xFFF0, 0x10000)],
}
WORDS = ("the of and to in is that it was for on are as with his they be at one have this from or had by hot but some what there we can out other were all "
         "your when up use word how said an each she which do their time if will way about many then them would write like so these her long make thing see him two has "
         "look more day could go come did my sound no most number who over know water than call first people may down side been now find any new work part take get place made "
         "function return class import def self None True False null undefined const let var public static void int float string array list dict async await").split()


def _word_salad(rng):
    out = []
    for _ in range(rng.randint(1, 25)):
        word = rng.choice(WORDS)
        word = rng.choice([word, word, word, word.capitalize(), word.upper(), word + "'s", word + rng.choice(['.', ',', '!', '?', ';', ':', ')', '"']), rng.choice(['(', '"', '_', '@', '#']) + word,
                           str(rng.randint(0, 10 ** rng.randint(1, 9)))])
        out.append(word)
    return rng.choice([' ', ' ', ' ', '  ', '\n', '\t', ' \n ', '']).join(out)


def _any_char(rng):
    while True:
        c = rng.choice([rng.randint(0, 0x7F), rng.randint(0x80, 0x7FF), rng.randint(0x800, 0xFFFF), rng.randint(0x10000, 0x10FFFF)])
        if not 0xD800 <= c <= 0xDFFF:
            return chr(c)


def _assigned(text):
    """Characters that this Python's Unicode version knows: newer ones may be classed otherwise by another version."""
    return ''.join(c for c in text if unicodedata.category(c) != 'Cn')


def strings():
    rng = random.Random(20240607)
    out = ['', ' ', '\n', 'a', ' a', 'a ', '  a', '\n\na', '\ta']
    out += CODE + SENTENCES + LOOK_ALIKES + LONG
    out += [' ' + s for s in SENTENCES] + [s + '\n\n' for s in SENTENCES[:30]] + [s.upper() for s in SENTENCES] + [s[::-1] for s in SENTENCES]
    out += [a + b for a in LOOK_ALIKES[:20] for b in (' tail', '\n', 'é')]
    for name in sorted(ALPHABETS):
        for _ in range(32):
            out.append(''.join(rng.choice(ALPHABETS[name]) for _ in range(rng.randint(1, 40))))
    names = sorted(ALPHABETS)
    for _ in range(300):
        out.append(''.join(rng.choice(ALPHABETS[rng.choice(names)]) for _ in range(rng.randint(2, 60))))
    for _ in range(400):
        out.append(_word_salad(rng))
    for _ in range(180):
        out.append(''.join(_any_char(rng) for _ in range(rng.randint(1, 30))))
    for _ in range(180):
        out.append(bytes(rng.randint(0, 255) for _ in range(rng.randint(1, 40))).decode('utf-8', errors='replace'))
    for _ in range(150):
        text = ' '.join(rng.choice(SENTENCES + CODE) for _ in range(2))
        cut = sorted(rng.randint(0, len(text)) for _ in range(2))
        out.append(text[cut[0]:cut[1]])
    out = [_assigned(s) for s in out]
    return list(dict.fromkeys(out))


if __name__ == '__main__':
    import json
    s = strings()
    print(len(s), len(json.dumps(s, ensure_ascii=False).encode()))
