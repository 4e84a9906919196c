"""Contexts for whole chat templates, and snippets that each exercise one thing of the template language."""

SPECIAL_TOKENS = {'bos_token': '<s>', 'eos_token': '</s>', 'unk_token': '<unk>', 'pad_token': '<pad>'}

WEATHER = {'type': 'function', 'function': {
    'name': 'get_weather', 'description': 'Get <b>weather</b> & "more" für é😀', 'parameters': {
        'type': 'object', 'properties': {
            'city': {'type': 'string', 'description': "City's name"}, 'days': {'type': 'integer', 'minimum': 1, 'default': 3},
            'tags': {'type': 'array', 'items': {'type': 'string', 'enum': ['a', 'b']}}, 'opt': {'type': ['string', 'null']},
            'x': {'type': 'number', 'maximum': 1e16, 'minimum': 0.00001, 'default': 2.0}}, 'required': ['city']}}}
NOOP = {'type': 'function', 'function': {'name': 'noop', 'description': '', 'parameters': {'type': 'object', 'properties': {}}}}


def user(content):
    return {'role': 'user', 'content': content}


def assistant(content, **more):
    return {'role': 'assistant', 'content': content, **more}


def system(content):
    return {'role': 'system', 'content': content}


def call(name, arguments, call_id='call00001'):
    return {'id': call_id, 'type': 'function', 'function': {'name': name, 'arguments': arguments}}


def result(content, call_id='call00001', name='get_weather'):
    return {'role': 'tool', 'name': name, 'tool_call_id': call_id, 'content': content}


ARGUMENTS = {'city': 'Paris', 'days': 3, 'ok': True, 'none': None, 'f': 1.5, 'big': 1e22, 'list': [1, 'é', None], 'map': {'a': [], 'b': {}}, 'text': 'two\nlines "q" \'s\''}

CONTEXTS = [
    {'messages': [user('Hi')]},
    {'messages': [user('Hi')], 'add_generation_prompt': False},
    {'messages': [system('Be <nice> & kind.'), user('Hi  \n')]},
    {'messages': [system('  sys  '), user('a'), assistant('b'), user('c')], 'add_generation_prompt': False},
    {'messages': [user('a'), assistant('b '), user(' c\x1c\n\u3000'), assistant('d')], 'add_generation_prompt': False},
    {'messages': [user('weather?')], 'tools': [WEATHER]},
    {'messages': [system('sys'), user('weather?')], 'tools': [WEATHER, NOOP]},
    {'messages': [user('weather?'), assistant('', tool_calls=[call('get_weather', ARGUMENTS)]), result('sunny')], 'tools': [WEATHER]},
    {'messages': [user('weather?'), {'role': 'assistant', 'content': None, 'tool_calls': [call('get_weather', {'city': 'Paris'}), call('noop', {}, 'call00002')]},
                  result('{"t": 20}'), result('ok', 'call00002', 'noop'), assistant('It is 20.'), user('thanks')], 'tools': [WEATHER, NOOP]},
    {'messages': [user('q'), assistant('ans', reasoning_content='let me think\n'), user('q2')]},
    {'messages': [user('q'), assistant('ans', reasoning='older name'), user('q2')]},
    {'messages': [user('q'), assistant('<think>\nhmm\n</think>\n\nans'), user('q2')]},
    {'messages': [user('q'), assistant('<think>\nhmm\n</think>\n\nans')], 'add_generation_prompt': False},
    {'messages': [user('q')], 'kwargs': {'enable_thinking': False}},
    {'messages': [user('q')], 'kwargs': {'enable_thinking': True}},
    {'messages': [user([{'type': 'text', 'text': 'part 1'}, {'type': 'text', 'text': 'part 2'}])]},
    {'messages': [system([{'type': 'text', 'text': 'sys part'}]), user('x')]},
    {'messages': [user([{'type': 'image'}, {'type': 'text', 'text': 'what'}])]},
    {'messages': [user('a'), user('b')]},
    {'messages': [assistant('starts')]},
    {'messages': []},
    {'messages': [{'role': 'developer', 'content': 'dev'}, user('x')]},
    {'messages': [{'role': 'weird', 'content': 'w'}, user('x')]},
    {'messages': [user('x'), system('late')]},
    {'messages': [user('q')], 'documents': [{'title': 'T1', 'text': 'body é'}, {'title': 'T2', 'text': 'b2'}]},
    {'messages': [user('weather?'), assistant('Let me see', reasoning_content='r', tool_calls=[call('get_weather', '{"city": "Paris"}')]), result('sunny')], 'tools': [WEATHER]},
    {'messages': [user('日本語 \u2028 \u00a0 e\u0301 👩\u200d👩\u200d👧 <|im_end|>')], 'kwargs': {'bos_token': '<other>'}},
    {'messages': [user('a'), assistant('b', tool_calls=[]), user('<tool_response>\nx\n</tool_response>')]},
    {'messages': [user('x' * 500), assistant('y' * 500)] * 20 + [user('end')]},
]

DATA = {'kwargs': {
    'n': 3, 'f': 2.5, 'whole': 2.0, 'big': 1e16, 'tiny': 0.00001, 'neg': -7, 'huge': 18446744073709551615, 'yes': True, 'no': False, 'nil': None, 'empty': '', 'text': "It's <b>\"é\" & more</b>",
    'spaced': ' \t\x1c pad \x1f\u00a0\n', 'words': 'a b  c\td', 'list': [3, 1, 2], 'mixed': [1, 'a', None, True, 2.5, [], {}], 'names': ['bob', 'Alice', 'carol'],
    'map': {'b': 1, 'a': {'x': [1, 2]}, 'items': 5, 'c d': None}, 'people': [{'name': 'bob', 'age': 3, 'kind': 'x'}, {'name': 'al', 'age': 1, 'kind': 'y'}, {'name': 'cy', 'age': 2, 'kind': 'x'}], 'deep': {'a': [{'b': {'c': [1, {'d': None}]}}]},
    'quoted': ["it's", 'say "x"', 'both \' "', 'nl\n\\', '\x00\x7f\u00a0\u200b\U0001f600\u0301']}}

_SNIPPETS = r'''
{{ tojson_all }}{{ mixed|tojson }} {{ map|tojson }} {{ text|tojson }} {{ quoted|tojson }}
{{ map|tojson(indent=2) }}|{{ []|tojson(indent=2) }}|{{ {}|tojson(indent=4) }}|{{ deep|tojson(indent=1) }}
{{ map|tojson(separators=(',', ':')) }} {{ deep|tojson(indent=2, separators=(',', ': ')) }} {{ map|tojson(sort_keys=true) }} {{ text|tojson(ensure_ascii=true) }} {{ quoted|tojson(true) }}
{{ big|tojson }} {{ tiny|tojson }} {{ whole|tojson }} {{ huge|tojson }} {{ nil|tojson }} {{ yes|tojson }} {{ -0.0|tojson }} {{ 1e300|tojson }} {{ 123456789.125|tojson }}
{{ {'a': 1, 'b': [1, 2]}|tojson }} {{ (1, 2)|tojson }} {{ {1: 2}|tojson }} {{ {'z': {'y': 1}}|tojson(indent='  ') }}
{{ big }} {{ tiny }} {{ whole }} {{ huge }} {{ nil }} {{ yes }} {{ no }} {{ n }} {{ neg }} {{ f }} {{ 0.1 + 0.2 }} {{ 1e15 }} {{ 1e16 }} {{ 123456.0 }}
{{ mixed }} {{ map }} {{ quoted }} {{ deep }} {{ (1, 'a') }} {{ (1,) }} {{ [] }} {{ {} }} {{ [none, true, 1.0] }}
{{ undefined_thing }}[{{ map.nothing }}][{{ map['nothing'] }}]{{ undefined_thing is defined }} {{ nil is defined }} {{ undefined_thing is none }} {{ nil is none }}
{{ nil|string }} {{ yes|string }} {{ big|string }} {{ mixed|string }} {{ whole|string }} {{ "x" ~ n ~ f ~ yes ~ nil ~ whole ~ list }}
[{{ spaced|trim }}][{{ spaced.strip() }}][{{ spaced.lstrip() }}][{{ spaced.rstrip() }}][{{ 'xxaxx'.strip('x') }}][{{ 'xxaxx'|trim('x') }}][{{ n|trim }}]
{{ words.split() }} {{ words.split(' ') }} {{ words.split(' ', 1) }} {{ words.split(maxsplit=1) }} {{ words.rsplit(' ', 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a,b,,c'.split(',') }} {{ words.rsplit() }} {{ words.split(none, 2) }} {{ words.rsplit(none, 2) }}
{{ 'a\nb\r\nc\x0bd\x1ce\u2028f'.splitlines() }} {{ 'a\n\nb\n'.splitlines(true) }} {{ ''.splitlines() }}
{{ 'abcabc'.find('c') }} {{ 'abcabc'.find('c', 3) }} {{ 'abcabc'.rfind('b') }} {{ 'abc'.find('z') }} {{ 'éab'.find('b') }} {{ 'abcabc'.index('b', 2) }} {{ 'abcabc'.count('bc') }} {{ 'aaa'.count('aa') }} {{ 'abc'.find('b', 0, 1) }} {{ 'abcabc'.count('b', 2) }}
{{ 'abc'.startswith('ab') }} {{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.endswith(('c',)) }} {{ 'abc'.startswith('b', 1) }} {{ 'abc'.endswith('b') }} {{ ''.startswith('') }}
{{ 'abc'.replace('b', 'X') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'ab'.replace('', '-') }} {{ text|replace('<', '[') }} {{ 'aaa'|replace('a', 'b', 1) }}
{{ 'hello wORLD it\'s'.title() }} {{ 'hello wORLD it\'s'|title }} {{ 'hELLO'.capitalize() }} {{ 'hELLO'|capitalize }} {{ 'aB'.upper() }} {{ 'aB'|lower }} {{ 'aBß'.swapcase() }} {{ 'Straße'.casefold() }} {{ 'ß'.upper() }} {{ 'ΑΣ'.lower() }}
{{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('bc') }} {{ 'abc'.removeprefix('z') }} {{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('-') }} {{ '42'.zfill(5) }} {{ '-42'.zfill(5) }} {{ 'ab'.ljust(5, '.') }}| {{ 'ab'.rjust(5) }}| {{ 'ab'.center(5, '*') }} {{ 'abc'.center(6, '*') }}
{{ 'a'.isalpha() }} {{ '1'.isdigit() }} {{ ' \x1c'.isspace() }} {{ ''.isspace() }} {{ 'a1'.isalnum() }} {{ 'ab'.islower() }} {{ 'AB'.isupper() }} {{ 'é'.isascii() }} {{ '12'.isnumeric() }}
{{ ', '.join(names) }} {{ names|join(', ') }} {{ list|join }} {{ people|join('/', attribute='name') }} {{ ''.join([]) }} {{ mixed[:2]|join('-') }}
{{ '{} and {1}'.format('a') if false else '' }}{{ '{} {}'.format('a', 2) }} {{ '{0}{1}{0}'.format('x', 'y') }} {{ '{:>4}|{:<4}|{:^4}'.format('a', 'b', 'c') }} {{ '{:.2f}'.format(f) }} {{ '{{}}'.format() }} {{ '%s-%d-%.1f'|format('a', 3, f) }} {{ '{:03d}'.format(n) }}
{{ list|sort }} {{ list|sort(reverse=true) }} {{ names|sort }} {{ names|sort(case_sensitive=true) }} {{ people|sort(attribute='age')|map(attribute='name')|list }} {{ list|reverse|list }} {{ 'abc'|reverse }}
{{ list|first }} {{ list|last }} {{ list|length }} {{ 'é😀'|length }} {{ map|length }} {{ list|sum }} {{ list|max }} {{ list|min }} {{ [1, 1, 2]|unique|list }} {{ list|count }} {{ people|sum(attribute='age') }}
{{ people|selectattr('kind', 'equalto', 'x')|map(attribute='name')|list }} {{ people|rejectattr('kind', 'eq', 'x')|list|length }} {{ list|select('odd')|list }} {{ list|reject('gt', 1)|list }} {{ people|selectattr('age')|list|length }} {{ names|map('upper')|list }} {{ people|map(attribute='zip', default='none')|list }} {{ list|select('in', [1, 2])|list }}
{% for kind, group in people|groupby('kind') %}{{ kind }}:{% for p in group %}{{ p.name }} {% endfor %};{% endfor %}
{% for k, v in map.items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in map|items %}{{ k }},{% endfor %}{% for k in map %}{{ k }} {% endfor %}{% for k, v in map|dictsort %}{{ k }} {% endfor %}{{ map.keys()|list }} {{ map.values()|list }} {{ map.get('b') }} {{ map.get('zz') }} {{ map.get('zz', 7) }} {{ map['items'] }} {{ map['c d'] }}
{% for x in list %}{{ loop.index }}/{{ loop.length }} {{ loop.index0 }} {{ loop.revindex }} {{ loop.first }} {{ loop.last }} {{ loop.cycle('a', 'b') }} {{ loop.previtem|default('-') }} {{ loop.nextitem|default('-') }};{% endfor %}
{% for x in [] %}x{% else %}none{% endfor %}{% for x in list if x > 1 %}{{ x }}{{ loop.length }}{% endfor %}{% for x in list %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if x == 2 %}{% break %}{% endif %}{% endfor %}{% for a, b in [(1, 2), (3, 4)] %}{{ a + b }} {% endfor %}{% for x in undefined_thing %}x{% endfor %}
{% for p in [{'v': 1, 'c': [{'v': 2, 'c': []}]}] recursive %}{{ p.v }}{{ loop.depth }}{{ loop(p.c) }}{% endfor %}{% for x in [1, 1, 2] %}{{ loop.changed(x) }} {% endfor %}
{% set ns = namespace(count=0, found=none) %}{% for x in list %}{% set ns.count = ns.count + x %}{% set ns.found = x %}{% endfor %}{{ ns.count }} {{ ns.found }}{% set x = 1 %}{% for i in list %}{% set x = i %}{% endfor %}{{ x }}{% set a, b = 1, 2 %}{{ a }}{{ b }}
{% set block %}  body {{ n }} {% endset %}[{{ block }}]{% set up | upper %}abc{% endset %}{{ up }}{% filter upper %}f{{ n }}x{% endfilter %}{% with q = 5, r = n %}{{ q }}{{ r }}{% endwith %}{{ q is defined }}
{% macro m(a, b=2, c='z') %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c=3) }} {{ m(1, 2, 3) }}
{% macro m(a, b=2) %}[{{ a }}{{ b }}]{% endmacro %}{{ m() }}{{ m('x')|length }}{{ m('x') ~ 'y' }}{% macro outer() %}<{{ caller() }}>{% endmacro %}{% call outer() %}in{% endcall %}{% macro rec(k) %}{{ k }}{% if k > 0 %}{{ rec(k - 1) }}{% endif %}{% endmacro %}{{ rec(5) }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 1 + 2 * 3 }} {{ -n }} {{ f * 2 }} {{ n + f }} {{ 'ab' * 2 }} {{ [1] + [2] }} {{ [0] * 3 }} {{ 7.0 // 2 }} {{ 2.5 % 1 }} {{ 10 ** 20 }} {{ 2 ** 3 ** 2 }}
{{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ 1 < 2 < 3 }} {{ 1 in list }} {{ 9 not in list }} {{ 'b' in 'abc' }} {{ 'b' in map }} {{ none == none }} {{ true == 1 }} {{ [1, 2] == [1, 2] }} {{ {'a': 1} == {'a': 1} }} {{ not n }} {{ n and 'yes' }} {{ empty or 'dflt' }} {{ 0 or none }} {{ '' in 'x' }} {{ 1 != 2 }} {{ (1, 2) == [1, 2] }}
{{ 'a' if n else 'b' }} {{ 'a' if nil }}| {{ n if nil else f if no else 'z' }} {{ nil|default('d') }} {{ nil|default('d', true) }} {{ undefined_thing|default('u') }} {{ empty|d('e', boolean=true) }} {{ 0|default(5) }}
{{ list[0] }} {{ list[-1] }} {{ list[1:] }} {{ list[:-1] }} {{ list[::-1] }} {{ 'abcdef'[1:4] }} {{ 'abcdef'[-2:] }} {{ 'abcdef'[::2] }} {{ list[5:] }} {{ 'é😀x'[1] }} {{ people[0].name }} {{ people[0]['name'] }} {{ list[9]|default('out') }} {{ 'abc'[9]|default('out') }} {{ map.a.x[0] }} {{ (1, 2, 3)[1:] }}
{{ n is number }} {{ f is float }} {{ n is integer }} {{ yes is boolean }} {{ text is string }} {{ list is sequence }} {{ map is mapping }} {{ map is iterable }} {{ nil is iterable }} {{ text is iterable }} {{ n is iterable }} {{ text is sequence }} {{ n is odd }} {{ n is even }} {{ n is divisibleby(3) }} {{ yes is true }} {{ no is false }} {{ n is eq 3 }} {{ n is in [3] }} {{ 'a' is lower }} {{ yes is number }} {{ n is not none }} {{ yes is integer }} {{ list is mapping }} {{ nil is sequence }} {{ n is sameas 3 }} {{ m is callable }} {{ range is callable }}
{{ range(3)|list }} {{ range(1, 10, 3)|list }} {{ range(3, 0, -1)|list }} {{ dict(a=1, b=2) }} {{ dict(map, z=1)|length }} {% set c = cycler('x', 'y') %}{{ c.next() }}{{ c.next() }}{{ c.next() }} {% set j = joiner(', ') %}{{ j() }}a{{ j() }}b
{{ text|e }} {{ text|escape }} {{ text|forceescape }} {{ text|safe }} {{ '<a>'|e|e }} {{ n|e }} {{ text|striptags }} {{ 'a b&c/é'|urlencode }}
{{ '3'|int }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ 3.9|int }} {{ '3.5'|float }} {{ 'x'|float }} {{ '1e3'|float }} {{ 3|float }} {{ 2.567|round(2) }} {{ 2.5|round }} {{ 3.5|round }} {{ 2.1|round(0, 'ceil') }} {{ 2.9|round(method='floor') }} {{ -3|abs }} {{ yes|int }} {{ '0x1f'|int(0, 16) }} {{ ' 7 '|int }}
{{ 'abc def ghi'|truncate(8) }} {{ 'abc def ghi'|truncate(8, true) }} {{ 'abc'|center(7) }}| {{ 'a b c'|wordcount }} {{ 'line1\nline2'|indent(2) }} {{ 'line1\n\nline2'|indent(2, true) }} {{ 'x\ny'|indent('>') }} {{ 'x\n\ny'|indent(2, blank=true) }} {{ list|batch(2)|list }} {{ list|slice(2)|list }} {{ list|list }} {{ 'abc'|list }} {{ map|list }} {{ 1000000|filesizeformat }}
{{ people|map(attribute='name')|join('') }} {{ map|attr('b') }}|{{ people[0]|attr('name') }}| {{ 'a'|upper|lower }} {{ list|map('string')|join('+') }} {{ list|map('float')|list }} {{ names|map('replace', 'b', 'B')|list }}
a  {%- if true -%}  b  {%- endif -%}  c {{- ' d ' -}} e {#- comment -#}  f
  {% if true %}
    x
  {% endif %}
  {%+ if true %} y {% endif +%}
  z{# c #}
{{ 'end' }}
{% raw %}{{ not }} {% generation %} {# c #}{% endraw %}{# {% generation %} #}{{ '{% generation %}' }}
{% generation %}gen {{ n }}{% endgeneration %}|{%- generation -%}  x  {%- endgeneration -%}  |{% for i in list %}{% generation %}{{ i }}{% set leak = i %}{% endgeneration %}{% endfor %}{{ leak is defined }}
{{ strftime_now('%Y-%m-%d %H:%M:%S %a %A %b %B %d %j %y %I %p %% %-d %-m %e %F %T %D %U %W %V %u %w %G') }}|{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%c|%x|%X|%C|%h|%n|%t|%R|%r') }}|{{ strftime_now('') }}
{{ raise_exception('Stop: ' ~ n ~ ' "é"') }}
{% if n == 3 %}{{ raise_exception('in if') }}{% endif %}
{% macro m() %}{{ raise_exception('in macro') }}{% endmacro %}{{ m() }}
{{ undefined_thing.x }}
{{ nil.x }}|{{ nil['x'] }}
{{ n.x }}|{{ text.x }}|{{ list.x }}|{{ text['x'] }}
{{ 1 + 'a' }}
{{ undefined_thing + 'a' }}
{{ 'a' + n }}
{{ unknown_function() }}
{{ map.nothing() }}
{{ list.append(4) }}
{{ 1 / 0 }}
{{ '\x41\u00e9\t\101\'\"\\' }} {{ "a'b" }} {{ 'a"b' }} {{ 'multi
line' }} {{ 1_000 }} {{ 0x1f }} {{ 0b11 }} {{ 1.5e3 }} {{ true }} {{ True }} {{ none }} {{ None }} {{ 'a' 'b' }}
{%- set s = 'x' -%}
{{ s }}{{- s }}   {{ s -}}
 tail
{% if messages|length == 0 %}empty{% endif %}{{ messages }}{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ bos_token }}{{ eos_token }}
{% block b %}in block {{ n }}{% endblock %} {{ self.b() }}
{% if list is defined and list is not string and list|length > 2 and (map.b is not none) %}ok{% elif x %}no{% else %}no{% endif %}{{ not yes or no }}{{ not (yes and no) }}
{{ [1, 2, 3] | map('pow') if false else 'x' }} {{ (list | list)[0] }} {{ list|sort|first }} {{ -1|abs }} {{ not nil is none }} {{ 5 is not odd }} {{ 'a' ~ 1 + 2 }} {{ 1 if 0 else 2 if 1 else 3 }}
'''



def _split_snippets(text):
    lines = text.strip('\n').split('\n')
    out, at = [], 0
    while at < len(lines):
        take = 1
        if lines[at].startswith('  {% if true %}'):
            take = 6
        elif lines[at].startswith("{{ '\\x41"):
            take = 2
        elif lines[at].startswith('{%- set s'):
            take = 3
        out.append('\n'.join(lines[at:at + take]))
        at += take
    return out


def _one_by_one(snippet):
    """A line of independent {{ … }} outputs also counts one by one, so that one failure does not hide the others."""
    parts = []
    if '{%' in snippet or '{#' in snippet or '\n' in snippet:
        return parts
    start = snippet.find('{{')
    while start != -1:
        end = snippet.find(' }}', start)
        if end == -1:
            break
        parts.append(snippet[start:end + 3])
        start = snippet.find('{{', end)
    return parts if len(parts) > 1 else []


FEATURES = []
for _snippet in _split_snippets(_SNIPPETS):
    FEATURES.append((_snippet, DATA))
    FEATURES += [(part, DATA) for part in _one_by_one(_snippet)]
# A final newline is dropped once; block newlines are trimmed.
FEATURES += [(s, DATA) for s in ('x\n', 'x\n\n', '\nx', '{% if true %}\n\nx\n{% endif %}\n\ny', '{{ n }}\n\n', '  {# c #}  \nx', '{% set q = 1 %}\n{{ q }}\n', 'a\r\n{% if true %}\r\nb{% endif %}\r\n', '')]
# What the C++ side is known to do differently; chat_template_test.cc lists the same sources and checks that they still do.
FEATURES += [(s, DATA) for s in ('{{ +n }}', '{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }}', "{{ {'a': 'b c'}|urlencode }}", "{{ '%s!' % n }}", "{{ big ~ '' }}", "{{ 'a' ~ tiny }}",
                                 "{{ '<' + ('b'|safe) }}", '{% for x in nil %}{% endfor %}', "{{ list|map('string')|tojson }}")]
# Text that is no valid template.
FEATURES += [(s, DATA) for s in ('{% if %}', '{{ x', '{% for %}', '{% endif %}', '{% unknown_tag %}', '{{ 1 + }}', '{% if true %}', '{{ "a }}', '{% generation %}')]

_NAMED_BOTH = [['default', 'D{{ messages[0].content }}'], ['tool_use', 'T{{ tools[0].function.name }}'], ['rag', 'R']]
NAMED = [
    (_NAMED_BOTH, {'messages': [user('x')]}),
    (_NAMED_BOTH, {'messages': [user('x')], 'tools': [NOOP]}),
    ([['default', 'only {{ tools is none }}']], {'messages': [user('x')], 'tools': [NOOP]}),
]
