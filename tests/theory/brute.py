"""The theory once more, slowly and in the plainest way, for the tests to compare with."""

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq

from r2mae.masking import Ratio
from r2mae.theory import ClosedRisk, Covariance, Inputs, fixed_point
from r2mae.theory.copies import Copies

Nodes = tuple[np.ndarray, np.ndarray]


class Given(Ratio):
    """A discrete distribution of ratios."""

    def __init__(self, p: object, weight: object) -> None:
        self.p, self.weight = np.asarray(p, dtype=float), np.asarray(weight, dtype=float)

    def nodes(self) -> Nodes:
        return self.p, self.weight


def simulate_plainly(
    sigma: np.ndarray,
    beta: np.ndarray,
    n: int,
    ratio: Callable[[np.random.Generator, int], np.ndarray],
    noise: float,
    repetitions: int,
    seed: int = 0,
    *,
    masks: int = 1,
    inputs: Inputs | None = None,
    ridge: float = 0.0,
) -> np.ndarray:
    """Return the risk and the magnitude of each repetition, (R, 2): fresh rows, and the pseudo-inverse."""
    rng, root, found = np.random.default_rng(seed), np.linalg.cholesky(sigma), []
    for _ in range(repetitions):
        x = rng.standard_normal((n, len(beta))) @ root.T
        y = x @ beta + np.sqrt(noise) * rng.standard_normal(n)
        rows, targets = [], []
        for _ in range(masks):
            p = ratio(rng, n)
            kept = rng.random(n) < p
            masked = x[kept] * (rng.random((kept.sum(), len(beta))) >= p[kept, None])
            rows.append(masked / (1 - p[kept, None]) if inputs is not None and inputs.rule == "rescaled" else masked)
            targets.append(y[kept])
        stacked = np.concatenate([*rows, np.sqrt(masks * ridge) * np.eye(len(beta))])
        b = np.linalg.pinv(stacked) @ np.concatenate([*targets, np.zeros(len(beta))])
        used = (b - beta) @ sigma @ (b - beta) if inputs is None else masked_in_use(sigma, beta, b, inputs)
        found.append([used, b @ sigma @ b])
    return np.array(found)


def masked_in_use(sigma: np.ndarray, beta: np.ndarray, b: np.ndarray, inputs: Inputs) -> float:
    """Return E(x̃b − xβ)² for rows with a share q missing, by the covariance of [x̃, x]."""
    missing = inputs.missing
    total = 0.0
    for q, weight in zip(*(([missing], [1.0]) if isinstance(missing, float) else missing.nodes()), strict=True):
        scale = 1 / (1 - q) if inputs.rule == "rescaled" else 1.0
        own = (1 - q) ** 2 * sigma + q * (1 - q) * np.diag(np.diag(sigma))
        total += weight * (scale**2 * b @ own @ b - 2 * scale * (1 - q) * b @ sigma @ beta + beta @ sigma @ beta)
    return float(total)


def uncentred(
    sigma: np.ndarray,
    mean: np.ndarray,
    beta: np.ndarray,
    n: int,
    ratio: object,
    noise: float,
    masks: float,
    q: float,
    rng: np.random.Generator,
) -> float:
    """Return the risk of one design with zeros for hidden entries, a mean, and an intercept."""
    d = len(beta)
    x = mean + rng.standard_normal((n, d)) @ np.linalg.cholesky(sigma).T
    y = x @ beta + np.sqrt(noise) * rng.standard_normal(n)
    p, weight = (np.array([ratio]), np.ones(1)) if isinstance(ratio, float) else ratio.nodes()  # type: ignore[attr-defined]
    if np.isinf(masks):
        weight = weight * p / (weight @ p)
        u, u2, s = weight @ (1 - p), weight @ (1 - p) ** 2, weight @ (p * (1 - p))
        gram = np.block(
            [[u2 * x.T @ x + s * np.diag((x**2).sum(axis=0)), u * x.sum(axis=0)[:, None]], [u * x.sum(axis=0), n]]
        )
        solved = np.linalg.solve(gram, [*(u * x.T @ y), y.sum()])
    else:
        rows, targets = [], []
        for _ in range(int(masks)):
            kept = rng.random(n) < p[0]
            z = rng.random((kept.sum(), d)) >= p[0]
            rows.append(np.column_stack([x[kept] * z, np.ones(len(z))]))
            targets.append(y[kept])
        solved = np.linalg.lstsq(np.concatenate(rows), np.concatenate(targets), rcond=None)[0]
    b, shift = solved[:d], (1 - q) * mean @ solved[:d] + solved[d] - mean @ beta
    own = q * (1 - q) * b**2 @ (np.diag(sigma) + mean**2)
    return float((1 - q) ** 2 * b @ sigma @ b + own - 2 * (1 - q) * b @ sigma @ beta + beta @ sigma @ beta + shift**2)


def theorem_2(
    v: np.ndarray, delta: float, beta: np.ndarray, n: int, p: float, kappa: float, ridge: float
) -> tuple[float, float]:
    """Return bias and variance of Theorem 2, with H̃, G^ββ, G^βv and G^vv from the spectral decomposition of Σ̃."""
    d, across = len(v), float(v @ beta)
    masked = np.diag((1 - p) + p * (1 - p) * delta * v * v) + (1 - p) ** 2 * delta * np.outer(v, v)
    s, vectors = np.linalg.eigh(masked)
    on_beta, on_v = vectors.T @ beta, vectors.T @ v
    mu = fixed_point(s, n * p, ridge)
    kept, lost = s / (s + mu), mu / (s + mu)
    c = p * delta * across / (1 + delta * (1 - p))
    shrunk = c * float(kept @ on_v**2)
    bias = float(lost @ on_beta**2) + c * shrunk + delta * (shrunk - float(lost @ (on_beta * on_v))) ** 2
    density = s / (s + mu) ** 2
    gain = (density.mean() + delta * float(density @ on_v**2) / d) / (n * p / d - float((kept**2).mean()))
    return bias, (kappa + p + p * p * delta * across**2 / (1 + delta * (1 - p))) * gain


def theorem_3(cov: Covariance, place: int, masked: np.ndarray, kept: np.ndarray, noise: float) -> ClosedRisk:
    """Return Theorem 3 for eigenvector number `place`: E[b̂ | X̃] = X̃⁺X̃'β with X̃'_{a,Z} = η X̃_{a,Z} Σ_ZZ⁻¹."""
    beta, eta, sigma = cov.eigenvectors(np.array([place]))[:, 0], cov.eigenvalues[place], cov.matrix()
    replaced, variances = np.zeros_like(masked), np.full(len(masked), noise)
    for row, (x, z) in enumerate(zip(masked, kept, strict=True)):
        inverse = np.linalg.pinv(sigma[np.ix_(z, z)], rcond=1e-12, hermitian=True)
        across = eta * beta[z] - sigma[np.ix_(z, z)] @ beta[z]  # Σ_ZZᶜ β_Zᶜ
        replaced[row, z] = eta * inverse @ x[z]
        variances[row] += eta * beta[~z] @ beta[~z] - across @ beta[z] - across @ inverse @ across
    inverse = np.linalg.pinv(masked)
    bias = float(cov.quadratic(inverse @ replaced @ beta - beta))
    return ClosedRisk(bias, float(cov.quadratic(inverse) @ variances))


def ridge_risk(sigma: np.ndarray, beta: np.ndarray, n: int, nodes: Nodes, noise: float, ridge: float) -> float:
    """Return the risk as theory.md writes it: K equations for δ_k, by plain iteration, and dL/dτ by differences."""
    p, weight = nodes
    count = n * float(weight @ p)
    pi, ell = weight * p / (weight @ p), ridge / count
    c = [(1 - q) ** 2 * sigma + q * (1 - q) * np.diag(np.diag(sigma)) for q in p]
    g = sigma @ beta

    def solved(tau: float) -> tuple[float, np.ndarray]:
        delta = np.zeros(len(p))
        for _ in range(20_000):
            matrix = sum(w * one / (1 + x) for w, one, x in zip(pi, c, delta, strict=True)) + tau * sigma
            inverse = np.linalg.inv(matrix + ell * np.eye(len(g)))
            new = np.array([np.vdot(one, inverse) for one in c]) / count
            if np.abs(new - delta).max() <= 1e-14 * np.abs(new).max():
                break
            delta = new
        s = float(pi @ ((1 - p) / (1 + delta)))
        objective = (g @ beta + noise) * float(pi @ (1 / (1 + delta))) - s**2 * g @ inverse @ g
        return float(objective), s * inverse @ g

    step = 1e-4 * ell
    values = [solved(k * step)[0] for k in (-2, -1, 1, 2)]
    slope = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * step)
    return float(slope - 2 * g @ solved(0.0)[1] + g @ beta)


def hidden_by_masks(sigma: np.ndarray, beta: np.ndarray, ratio: float, masks: int, seed: int = 0) -> np.ndarray:
    """Return Var(xβ | the kept entries) for random masks, (masks,)."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(masks):
        kept = rng.random(len(beta)) >= ratio
        across = sigma[np.ix_(~kept, kept)]
        left = sigma[np.ix_(~kept, ~kept)] - across @ np.linalg.solve(sigma[np.ix_(kept, kept)], across.T)
        found.append(beta[~kept] @ left @ beta[~kept])
    return np.array(found)


def root_of_trace(eigenvalues: np.ndarray, rows: float) -> float:
    """Return λ★ of ñ = Tr Σ̃(Σ̃ + λ★I)⁻¹."""
    return float(
        brentq(lambda at: (eigenvalues / (eigenvalues + at)).sum() - rows, 1e-12, 1e12, xtol=1e-14, rtol=1e-14)
    )


def whole_rows_risk(eigenvalues: np.ndarray, along: np.ndarray, rows: float, noise: float, ridge: float) -> float:
    """Return the classical ridge(less) risk with nothing hidden, from eigenvalues and β's parts along them."""

    def gap(log: float) -> float:
        return rows - ridge / np.exp(log) - float((eigenvalues / (eigenvalues + np.exp(log))).sum())

    top = np.log(eigenvalues.sum() + ridge) + 1
    kappa = 0.0 if gap(-60.0) > 0 else float(np.exp(brentq(gap, -60.0, top, xtol=1e-15, rtol=1e-15)))
    second = float(((eigenvalues / (eigenvalues + kappa)) ** 2).sum())
    bias = float((eigenvalues * along**2 * (kappa / (eigenvalues + kappa)) ** 2).sum())
    return (bias + noise * second / rows) / (1 - second / rows)


def pattern_means(copies: Copies, e: float, x: np.ndarray) -> np.ndarray:
    """Return the means of uᵀBu, Σ s B_kk, 1ᵀBu and 1ᵀB1, over K, from the K × K matrices B."""
    found, r = np.zeros(4), copies.inverse
    for share, probability in zip(copies.share, copies.probability, strict=True):
        numbers = np.rint(share / r).astype(int)
        u, s = np.repeat(copies.u, numbers), np.repeat(copies.s, numbers)
        b = np.linalg.inv(np.diag(e + r * x[1] * s) + r * x[0] * np.outer(u, u))
        found += probability * r * np.array([u @ b @ u, s @ np.diag(b), b.sum(axis=0) @ u, b.sum()])
    return found
