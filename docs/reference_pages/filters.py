"""The page of the language of filters, from its tables."""

from __future__ import annotations

from reference_pages.markdown import page, table


def filters() -> str:
    """Return the page of the language of filters, from its tables."""
    from detlab_hub.core.filters.fields import COLUMNS, STATES, FieldKind, FilterTable, MetricSummary
    from detlab_hub.core.filters.grammar import MOST_CHARS, MOST_DEPTH, MOST_PARTS, MOST_VALUES

    trials, experiments = (COLUMNS[one] for one in (FilterTable.TRIALS, FilterTable.EXPERIMENTS))
    names = list(dict.fromkeys([*trials, *experiments]))
    rows = [
        (
            f"`{name}`",
            (trials.get(name) or experiments[name]).kind.value,
            "yes" if name in trials else "",
            "yes" if name in experiments else "",
            (trials.get(name) or experiments[name]).about,
        )
        for name in names
    ]
    compared = [
        (FieldKind.NUMBER.value, "`=` `!=` `<` `<=` `>` `>=` `in`", "`0.9`, `1e-3`, `inf`; of a metric also `= nan`"),
        (
            FieldKind.TEXT.value,
            "`=` `!=` `in` `contains`",
            "`adam`, `'two words'`; exactly as it is",
        ),
        (FieldKind.USER.value, "as a text", "`ada`; `me` is who asks, `'me'` a user of that name"),
        (FieldKind.LABELS.value, "as a text", "one of the labels is it, or contains it"),
        (
            FieldKind.STATE.value,
            "`=` `!=` `in`",
            ", ".join(f"`{state}`" for state in STATES[FilterTable.TRIALS]) + "; `failed` is `ERROR`",
        ),
        (
            FieldKind.TIME.value,
            "as a number",
            "`2026-11-29` (the day, in UTC), `'2026-11-29 18:00'`, `2026-11-29T18:00+01:00`, `today`, `yesterday`,"
            " or an age: `-7d`, `-1h30m`",
        ),
        (FieldKind.DURATION.value, "as a number", "`90s`, `15m`, `1h30m`, `2d`, `1w`; a plain number is seconds"),
        (FieldKind.FLAG.value, "`=` `!=` `in`", "`true`, `false`"),
        (
            "hyperparameter",
            "all of these",
            "`0.1` is the number (and a text `0.1`), `'0.1'` the text, `true` the truth",
        ),
    ]
    summaries = [(f"`accuracy.{one.value}`", _SUMMARIES[one]) for one in MetricSummary]
    intro = f"""
One language for all tables: trials (`det trial search`, `client.search_trials`), experiments (`det experiment list
--filter`), the trials of one experiment (`det trial list 7 --filter`) and, with fields of its own, versions of models
(`det model search --where`). How it is used shows [find runs](../how-to/find-runs.md).

    accuracy > 0.9 and (label = paper or not hparams.lr > 1e-3)

Comparisons are joined by `and`, `or` and `not`, `not` first, then `and`; parentheses group them. A name or a value is a
word, or quoted if it has spaces, dots or marks: `"two words"`, `'it is'`. A filter has {MOST_CHARS:,} characters,
{MOST_PARTS} comparisons and {MOST_DEPTH} levels of parentheses at most, a list {MOST_VALUES} values.
"""
    grammar = """
    filter     := and_part ("or" and_part)*
    and_part   := factor ("and" factor)*
    factor     := "not" factor | "(" filter ")" | FIELD operator
    operator   := ("=" | "==" | "!=" | "<" | "<=" | ">" | ">=") VALUE
                | ["not"] "in" "(" VALUE ("," VALUE)* ")"
                | (["not"] "contains" | "~" | "!~") VALUE
                | "is" ["not"] "null"

`contains`, or `~`, looks for a part of a text, whatever the case of ASCII letters. There are no regular expressions.
A letter with a mark is the same in each of its Unicode forms.
What a row does not have fulfils no comparison, and `!=` and `not` are the plain opposite: `label != paper` holds for
what has no label. `is null` asks for what it does not have.
"""
    return page(
        "Filters",
        intro,
        "## Grammar\n" + grammar,
        "## Fields\n\nThe metrics and hyperparameters of an experiment are those of its best trial, or of its first one"
        " while no trial has a validation.",
        table(("field", "values", "trials", "experiments", "what it is"), rows),
        "## Metrics\n\nEvery other name is a metric of the group `validation`; `training.loss` is one of another group,"
        ' `metric.state` one whose name is also that of a field, `"a.b"` one whose name has a dot.',
        table(("name", "value"), summaries),
        "NaN is neither less nor greater than a number; `loss.last = nan` finds what has diverged.",
        "## Hyperparameters\n\n`hparams.lr`, or `hp.lr`; in a group `hparams.optimizer.lr`, with a dot in its name"
        ' `hparams."a.b"`. A list is equal to nothing; `is not null` finds it.',
        "## Values",
        table(("kind", "operators", "values"), compared),
        "All may be asked for by `is null` and `is not null`.",
        "## Orders and columns\n\nA field is also what tables are sorted by (`--sort -accuracy --sort created`, `-` for"
        " descending; what has no value comes last) and what further columns show (`-c loss.min`).",
    )


_SUMMARIES = {
    "best": "as without it: reported at the best validation of the trial, or last before it; where there was no"
    " validation yet, the last one",
    "last": "reported last",
    "min": "the least",
    "max": "the greatest",
}
