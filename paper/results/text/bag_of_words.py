"""Writes bag-of-words.csv: a bag of words on the four tasks of GLUE on which Table 2's models are probed.

    python paper/results/text/bag_of_words.py

There are 9,000 training examples of each task, as for the probes. Features are those of the probe: of a sentence its
TF-IDF vector u; of a pair u, v, |u - v| and u * v. Vocabulary and weights are those of the training examples. The
classifier is scikit-learn's logistic regression, whose penalty is chosen by five-fold cross-validation.
"""

from pathlib import Path

import pandas as pd
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegressionCV

from r2mae.catalogue import data_root
from r2mae.text.glue import GlueExamples, glue_task, read_glue, score

TASKS = ("mnli", "qnli", "qqp", "sst2")


def features(words: TfidfVectorizer, examples: GlueExamples) -> csr_matrix:
    """Return the features of the examples, a row each."""
    vectors = [words.transform(column) for column in examples.texts]
    if len(vectors) == 1:
        return vectors[0]
    first, second = vectors
    return hstack([first, second, abs(first - second), first.multiply(second)]).tocsr()


def main() -> None:
    """Write the table next to this file."""
    rows = []
    for name in TASKS:
        task = glue_task(name)
        train, test = read_glue(task, data_root() / "glue", 9_000, fewest=2)
        words = TfidfVectorizer(min_df=2, sublinear_tf=True).fit([text for column in train.texts for text in column])
        strengths = {"Cs": [0.03, 0.1, 0.3, 1, 3, 10, 30], "l1_ratios": (0,), "use_legacy_attributes": False}
        model = LogisticRegressionCV(cv=5, max_iter=2000, scoring="accuracy", **strengths)
        model.fit(features(words, train), train.labels)
        found = score(task, test.labels, model.predict_proba(features(words, test)))
        rows.append({"task": name, "train": len(train), "test": len(test), "C": f"{model.C_:g}"} | dict(found))
        print(rows[-1], flush=True)
    pd.DataFrame(rows).round(4).to_csv(Path(__file__).with_name("bag-of-words.csv"), index=False)


if __name__ == "__main__":
    main()
