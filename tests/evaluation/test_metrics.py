from r2mae.evaluation.metrics import by_ratio


def test_scores_by_ratio_are_found_whatever_their_order() -> None:
    names = ["loss", "loss_0.8", "loss_0.15", "top_1", "top_5", "accuracy_0.5", "hits_0", "hits_.5", "hits_1", "r_1.5"]
    assert by_ratio(names) == {
        "loss": {0.15: "loss_0.15", 0.8: "loss_0.8"},
        "hits": {0.0: "hits_0", 0.5: "hits_.5", 1.0: "hits_1"},
    }
