"""Chat templates and small template snippets with what transformers renders for them."""
import datetime
import json
import pathlib

import transformers.utils.chat_template_utils as hf

from template_cases import CONTEXTS, FEATURES, NAMED, SPECIAL_TOKENS


class FixedTime(datetime.datetime):
    """The instant that strftime_now() shows: Thursday, 2 January 2025, 03:04:05."""

    @classmethod
    def now(cls, tz=None):
        return cls(2025, 1, 2, 3, 4, 5)


hf.datetime = FixedTime


def render(source, context):
    """(text, None), or (None, message) when the template raises."""
    try:
        messages = hf._normalize_chat_messages(context.get('messages', []))
        text = hf.render_jinja_template(
            [messages], tools=context.get('tools'), documents=context.get('documents'), chat_template=source,
            add_generation_prompt=context.get('add_generation_prompt', True), **{**SPECIAL_TOKENS, **context.get('kwargs', {})})[0][0]
        return text, None
    except Exception as error:  # whatever Jinja2 or the template raises is what the test wants to know
        return None, f'{type(error).__name__}: {error}'


def expectation(source, context):
    text, error = render(source, context)
    return {'text': text} if error is None else {'error': error}


STRFTIME = '%a %A %b %B %c %C %d %D %e %F %g %G %h %H %I %j %k %l %m %M %p %P %r %R %S %T %u %U %V %w %W %x %X %y %Y %Z %z %% %-d %-m %_d %-H %-I %^a %f|%'


def strftime_cases():
    """Dates around the ends of years, where week numbers are decided, and some hours of the day."""
    out = []
    for year in list(range(1996, 2032)) + [1900, 2100]:
        for month, day in ((1, 1), (1, 4), (2, 28), (12, 29), (12, 31)):
            moment = datetime.datetime(year, month, day, (year * 7 + day) % 24, (month * day) % 60, year % 60)
            t = moment.timetuple()
            out.append([[t.tm_sec, t.tm_min, t.tm_hour, t.tm_mday, t.tm_mon - 1, t.tm_year - 1900, (t.tm_wday + 1) % 7, t.tm_yday - 1], moment.strftime(STRFTIME)])
    return {'pattern': STRFTIME, 'cases': out}


def write(out, qwen3_5):
    """`out`/templates/*.jinja are inputs, written by hand; the rest is made here."""
    cases = {}
    for path in sorted((out / 'templates').glob('*.jinja')):
        source = path.read_text(encoding='utf-8')
        cases[path.name] = [expectation(source, context) for context in CONTEXTS]
    if qwen3_5:
        cases['qwen3_5'] = [expectation(qwen3_5, context) for context in CONTEXTS]
    features = [{'source': source, 'context': context, **expectation(source, context)} for source, context in FEATURES]
    named = [{'sources': sources, 'context': context,
              **expectation(dict(sources)['tool_use' if 'tools' in context and 'tool_use' in dict(sources) else 'default'], context)}
             for sources, context in NAMED]
    text = json.dumps({'special_tokens': SPECIAL_TOKENS, 'contexts': CONTEXTS, 'templates': cases, 'features': features, 'named': named, 'strftime': strftime_cases()},
                      ensure_ascii=False, separators=(',', ':'))
    (out / 'templates.expected.json').write_text(text + '\n', encoding='utf-8')
