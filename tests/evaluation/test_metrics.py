from r2mae.evaluation.metrics import Metric, label_of, metrics_by_ratio


def test_metrics_by_ratio_are_found_in_any_order() -> None:
    names = ["loss", "loss_0.8", "loss_0.15", "top_1", "top_5", "accuracy_0.5", "hits_0", "hits_.5", "hits_1", "r_1.5"]
    assert metrics_by_ratio(names) == {
        "loss": {0.15: "loss_0.15", 0.8: "loss_0.8"},
        "hits": {0.0: "hits_0", 0.5: "hits_.5", 1.0: "hits_1"},
    }


def test_scores_have_the_labels_of_their_metrics() -> None:
    metrics = (Metric("knn_accuracy", "k-NN accuracy"), Metric("masked_mse", "masked reconstruction error"))
    names = ("knn_accuracy", "masked_mse_0.1", "spectral_entropy", "other_0.1")
    assert [label_of(name, metrics) for name in names] == [
        "k-NN accuracy", "masked reconstruction error at 0.1", "spectral entropy", "other 0.1",
    ]  # fmt: skip
