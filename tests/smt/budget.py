"""Proves that no budget is exceeded, for all 64-bit numbers, with the SMT solver z3 (PyPI: z3-solver).

    budget.py             proves the invariants, and finds the seeded defects
    budget.py --compare   evaluates the formulas on the cases of standard input, for tests/machine/smt.rs

The formulas below are those of src/types/money.rs and src/machine/budget. They work on numbers and on the solver's terms alike: the
test compares them with the shipped functions on numbers, and the proof is about the same lines.
"""

import json
import sys
from dataclasses import dataclass

MAX = 2**64 - 1
MILLION = 10**6
CLOSING_SHARE = 5
INSTRUCTION_TOKENS = 200

# The seeded defect, or none.
defect = None

# Facts for the solver about the numbers, quotients and products in terms.
side_conditions = []

# The names of quotients and products, by their operands.
named = {}


def ite(condition, yes, no):
    if isinstance(condition, bool):
        return yes if condition else no
    return z3.If(condition, yes, no)


def least(a, b):
    return ite(a <= b, a, b)


def most(a, b):
    return ite(a >= b, a, b)


def saturating_add(a, b):
    return least(a + b, MAX)


def saturating_sub(a, b):
    return ite(a >= b, a - b, 0)


def divide(a, b):
    """Returns the quotient of two numbers that are not negative. The divisor is positive."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    def conditions(quotient):
        rest = z3.FreshInt("rest")
        exact = a == times(quotient, b) + rest
        return z3.Implies(z3.And(a >= 0, b > 0), z3.And(exact, quotient >= 0, rest >= 0, rest < b))

    return name_of("quotient", a, b, conditions)


def times(a, b):
    """Returns the product of two numbers that are not negative. The solver gets a name for a product of two unknowns, since it
    decides what is linear: a proof gives it what it has to know of products."""
    if isinstance(a, int) or isinstance(b, int):
        return a * b
    return name_of(
        "product", a, b, lambda product: z3.And(product >= 0, z3.Implies(z3.Or(a == 0, b == 0), product == 0))
    )


def name_of(kind, a, b, conditions):
    key = (kind, *(x if isinstance(x, int) else (x.get_id(),) for x in (a, b)))
    if key not in named:
        # The operands are kept, so that their ids stay theirs.
        named[key] = (z3.FreshInt(kind), a, b)
        side_conditions.append(conditions(named[key][0]))
    return named[key][0]


# src/types/money.rs


@dataclass
class Price:
    input: object
    output: object
    cached_input: object
    cache_write: object
    long: object = None  # the threshold, and the four prices above it

    def for_input(self, tokens):
        if not self.long:
            return self
        threshold, *long = self.long
        own = (self.input, self.output, self.cached_input, self.cache_write)
        return Price(*(ite(tokens > threshold, most(a, b), a) for a, b in zip(own, long)))

    def max_input_price(self):
        if defect == "tokens of the cache are free":
            return self.input
        return most(most(self.input, self.cached_input), self.cache_write)


def cost_of(*parts):
    total = sum(times(tokens, price) for tokens, price in parts)
    return least(divide(total + MILLION - 1, MILLION), MAX)


def cost(price, usage):
    tokens, output, cached, written = usage
    price = price.for_input(tokens)
    plain = saturating_sub(tokens, saturating_add(cached, written))
    return cost_of(
        (plain, price.input), (cached, price.cached_input), (written, price.cache_write), (output, price.output)
    )


def max_cost(price, tokens, output):
    price = price.for_input(tokens)
    return cost_of((tokens, price.max_input_price()), (output, price.output))


def affordable_output(price, money, tokens):
    """Returns whether money buys the input, and how much output beside it."""
    price = price if defect == "the price of long inputs is ignored" else price.for_input(tokens)
    rest = money * MILLION - times(tokens, price.max_input_price())
    is_free = price.output == 0
    if isinstance(rest, int):
        bought = MAX if is_free or rest < 0 else divide(rest, price.output)
    else:
        bought = ite(is_free, MAX, divide(rest, price.output) + (1 if defect == "output is rounded up" else 0))
    return rest >= 0, least(bought, MAX)


# src/machine/budget/mod.rs


@dataclass
class Run:
    budget: object  # None without a limit
    max_tokens: object
    price: Price
    used_cost: object
    used_tokens: object
    wanted: object  # the output limit of the user, or of the model
    minimum: object
    closing: object  # the output that is kept for the closing call; None if this is it

    @property
    def is_final(self):
        return isinstance(self.closing, type(None))

    def kept_money(self, bound):
        if self.is_final:
            return 0
        needed = max_cost(self.price, saturating_add(bound, INSTRUCTION_TOKENS), self.closing)
        return least(needed, divide(self.budget, CLOSING_SHARE))

    def kept_tokens(self, bound):
        if self.is_final:
            return 0
        needed = saturating_add(saturating_add(bound, INSTRUCTION_TOKENS), self.closing)
        return least(needed, divide(self.max_tokens, CLOSING_SHARE))

    def left(self, limit, used, kept):
        kept = 0 if defect == "nothing is kept for the closing call" else kept
        return saturating_sub(saturating_sub(limit, used), kept)


def reserve(run, bound):
    """Returns whether a call is made, and its output limit."""
    limit, conditions = run.wanted, []
    if run.budget is not None:
        left = run.left(run.budget, run.used_cost, run.kept_money(bound))
        can_pay, output = affordable_output(run.price, left, bound)
        limit, conditions = least(limit, output), [*conditions, can_pay]
    if run.max_tokens is not None:
        left = run.left(run.max_tokens, run.used_tokens, run.kept_tokens(bound))
        conditions.append(left >= bound)
        limit = least(limit, left if defect == "the input is not counted" else left - bound)
    conditions.append(limit >= least(run.minimum, run.wanted))
    return conditions, limit


# src/machine/budget/budget_share.rs


def share(limit, used, others):
    """Returns what a sub-agent may use, beside others with this much."""
    closing = divide(limit + CLOSING_SHARE - 1, CLOSING_SHARE)
    taken = used if defect == "shares of others are ignored" else saturating_add(used, others)
    return divide(saturating_sub(saturating_sub(limit, taken), closing), 2)


# Proofs


def numbers(*names):
    """Returns unknown 64-bit numbers."""
    terms = [z3.Int(name) for name in names]
    side_conditions.extend(z3.And(term >= 0, term <= MAX) for term in terms)
    return terms


def unknown_price(with_long):
    kinds = ("input", "output", "cached", "written")
    own = numbers(*(f"price.{kind}" for kind in kinds))
    return Price(*own, numbers("threshold", *(f"long.{kind}" for kind in kinds)) if with_long else None)


def products_grow(*pairs):
    """Returns that a product is not larger than one of larger factors, for these pairs of factors."""
    return [z3.Implies(z3.And(a <= b, p <= q), times(a, p) <= times(b, q)) for (a, p), (b, q) in pairs]


def prove(name, assumptions, claim):
    """Refutes that the claim is false; returns the counterexample if there is one."""
    solver = z3.Solver()
    solver.set("timeout", 120_000)
    solver.add(*side_conditions, *assumptions, z3.Not(claim))
    answer = solver.check()
    side_conditions.clear()
    named.clear()
    if answer == z3.unknown:
        raise SystemExit(f"z3 does not decide '{name}': {solver.reason_unknown()}")
    return solver.model() if answer == z3.sat else None


def lemmas_about_products():
    """What the solver is given about products: they grow with their factors, and those of parts are those of the
    whole. Here it multiplies itself."""
    a, b, p, q = numbers("a", "b", "p", "q")
    first = prove("growth with a factor", [a <= b, p <= q], z3.And((q - p) * a >= 0, (b - a) * q >= 0))
    steps = [(q - p) * a >= 0, (b - a) * q >= 0]
    return first or prove("growth", steps, a * p <= b * q) or prove("parts", [], (b - a) * p + a * p == b * p)


def call_within_budget(with_long, is_closing, limits):
    """A call that is made, and whose reply stays within what was reserved, leaves the usage within the limits, and leaves what
    is kept for the closing call."""
    price = unknown_price(with_long)
    used_cost, used_tokens, wanted, minimum, closing, bound = numbers(
        "used_cost", "used_tokens", "wanted", "minimum", "closing", "bound"
    )
    [budget] = numbers("budget") if "money" in limits else [None]
    [max_tokens] = numbers("max_tokens") if "tokens" in limits else [None]
    run = Run(budget, max_tokens, price, used_cost, used_tokens, wanted, minimum, None if is_closing else closing)
    conditions, granted = reserve(run, bound)
    tokens, output, cached, written = usage = numbers("tokens", "output_tokens", "cached", "written")
    replied = [tokens <= bound, output <= granted, cached + written <= tokens]
    claims, lemmas = [], []
    if budget is not None:
        now = saturating_add(used_cost, cost(price, usage))
        kept = run.kept_money(bound)
        claims += [now <= budget, z3.Or(now + kept <= budget, now == used_cost)]
        replied.append(used_cost <= budget)
        real, reserved = price.for_input(tokens), price.for_input(bound)
        dearest = reserved.max_input_price()
        plain = saturating_sub(tokens, saturating_add(cached, written))
        parts = [(plain, dearest), (cached, dearest), (written, dearest)]
        lemmas = products_grow(
            ((plain, real.input), (plain, dearest)),
            ((cached, real.cached_input), (cached, dearest)),
            ((written, real.cache_write), (written, dearest)),
            ((tokens, dearest), (bound, dearest)),
            ((output, real.output), (granted, reserved.output)),
            ((granted, reserved.output), (bought(run, bound), reserved.output)),
        )
        lemmas.append(sum(times(*part) for part in parts) == times(tokens, dearest))
    if max_tokens is not None:
        now = saturating_add(used_tokens, saturating_add(tokens, output))
        claims += [now <= max_tokens, z3.Or(now + run.kept_tokens(bound) <= max_tokens, now == used_tokens)]
        replied.append(used_tokens <= max_tokens)
    name = f"a call within {' and '.join(limits)}"
    return prove(name, [*conditions, *replied, *lemmas], z3.And(*claims))


def bought(run, bound):
    """Returns the output that is bought, before it is limited by anything else."""
    left = run.left(run.budget, run.used_cost, run.kept_money(bound))
    price = run.price.for_input(bound)
    return divide(left * MILLION - times(bound, price.max_input_price()), price.output)


def shares_within_budget():
    """A share, with what is used and the shares of others, is within the limit and leaves a fifth of it; and usage within a share
    leaves the sum as it was."""
    limit, used, others, usage = numbers("limit", "used", "others", "usage")
    mine = share(limit, used, others)
    left = saturating_sub(mine, usage)
    claim = z3.And(
        used + others + mine <= limit,
        z3.Or(mine == 0, used + others + mine + divide(limit, CLOSING_SHARE) <= limit),
        saturating_add(used, usage) + others + left <= limit,
    )
    return prove("shares", [used + others <= limit, usage <= mine], claim)


PROOFS = {
    "lemmas about products": lemmas_about_products,
    **{
        f"a {'closing ' * is_closing}call within {' and '.join(limits)}{', with prices for long inputs' * with_long}": (
            lambda with_long=with_long, is_closing=is_closing, limits=limits: call_within_budget(
                with_long, is_closing, limits
            )
        )
        for limits in (["money"], ["tokens"], ["money", "tokens"])
        for is_closing in (False, True)
        for with_long in ((False, True) if "money" in limits else (False,))
    },
    "shares of sub-agents": shares_within_budget,
}

DEFECTS = [
    "output is rounded up",
    "tokens of the cache are free",
    "the price of long inputs is ignored",
    "nothing is kept for the closing call",
    "the input is not counted",
    "shares of others are ignored",
]


def main():
    global z3, defect
    import z3

    for name, proof in PROOFS.items():
        counterexample = proof()
        if counterexample is not None:
            raise SystemExit(f"{name}: false for {counterexample}")
        print(f"proved: {name}", flush=True)
    for defect in DEFECTS:
        found = next((name for name, proof in PROOFS.items() if proof() is not None), "")
        if not found:
            raise SystemExit(f"the defect '{defect}' is not found")
        print(f"found: {defect} (by: {found})", flush=True)


def shares_of_two(*limits):
    """Returns the shares of two sub-agents that begin one after the other."""
    first = [share(limit, used, 0) if limit is not None else None for limit, used in limits]
    second = [share(limit, used, own) if limit is not None else None for (limit, used), own in zip(limits, first)]
    return [first, second]


def compare():
    """Evaluates the formulas on each case, and compares with what the shipped functions have returned."""
    count = 0
    for line in sys.stdin:
        case = json.loads(line)
        price = Price(*case["price"], case["long"])
        bound, money, usage = case["bound"], case["money"], case["usage"]
        can_pay, output = affordable_output(price, money, bound)
        used_cost, used_tokens = case["used"]
        run = Run(case["budget"], case["max_tokens"], price, used_cost, used_tokens, case["wanted"], case["minimum"], case["closing"])
        conditions, granted = reserve(run, bound)
        has_limit = run.budget is not None or run.max_tokens is not None
        computed = {
            "cost": cost(price, usage),
            "max_cost": max_cost(price, bound, usage[1]),
            "affordable": output if can_pay else None,
            "granted": granted if all(conditions) or not has_limit else None,
            "shares": shares_of_two((run.budget, used_cost), (run.max_tokens, used_tokens)),
        }
        if computed != case["shipped"]:
            raise SystemExit(f"the formulas differ from the shipped functions: {computed} for {line}")
        count += 1
    print(f"{count} cases are the same")


if __name__ == "__main__":
    compare() if sys.argv[1:] == ["--compare"] else main()
