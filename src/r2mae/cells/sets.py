"""The single-cell sets that are known by name, and the uses of their columns."""

from typing import Any

from r2mae.catalogue import PublicFile, PublicSet

# Copies without an address, and sets whose files must be chosen on a portal: users put both into the data folder.
_SMALL = "a small copy of public data, without an address to fetch it from"
_PORTAL = "https://cellxgene.cziscience.com/collections/"


def _small(name: str, title: str, file: str, size: int, sha256: str) -> PublicSet:
    files = (PublicFile(f"cells/{file}", "", sha256, size),)
    return PublicSet(name, "cells", title, _SMALL, "that of the original data", files)


def _portal(name: str, title: str, file: str, collection: str) -> PublicSet:
    origin = f"the portal CELLxGENE, {_PORTAL}{collection}: download its .h5ad"
    return PublicSet(
        name, "cells", title, origin, "that of the portal's collection", (PublicFile(f"cells/{file}", ""),)
    )


# The paper's ρ_t = 0.5 − 0.5·t·λ is 0.1 at step 240,000 on HLCA (λ = 1/300,000), and at step 120,000 on SEA-AD
# (λ = 1/150,000). The paper's runs (50 epochs of 90 % of 2,161,082 or 1,378,211 cells, batch 400) have 243,122 and
# 155,049 steps, the last of which have the numbers 243,121 and 155,048.
HLCA_DYNAMIC_END = 240_000 / 243_121
SEA_AD_DYNAMIC_END = 120_000 / 155_048

# fmt: off
SETS: dict[str, PublicSet] = {
    entry.name: entry
    for entry in (
        _small("csle", "childhood lupus, PBMC: 1,000 cells, 1,503 genes, 44 donors", "csle_44donors.h5ad", 379_525,
            "4b3b9696e05240414d159ff99682116b7964d67e0c2bd96e2f0ce64a3c86fa10"),
        _small("covid-tcells", "COVID-19, T and NK cells: 5,494 cells, 500 genes, 15 donors",
            "covid_tcell_15donors.h5ad", 2_981_810, "3034725148e98669a74fe6653cc95b39c53207ecddb01dd6c65d1f58ea883a83"),
        _small("onek1k", "OneK1K, PBMC: 7,811 cells, 1,000 genes, 40 donors", "onek1k_40donors.h5ad", 1_826_041,
            "d6ab498b71e330d9136131e6e9739aab2add36a6e259cdbef82a1ed6581fcd40"),
        _small("perez-tcells", "lupus, T cells: 15,751 cells, 3,000 genes, 7 donors",
            "perez_tcells_7donors.h5ad", 4_677_971, "71f1c4f8d68fb335e849b6c6daee869820491ca3b47b563684d7bece25f6c979"),
        _small("combat", "COMBAT COVID-19: 4,591 cells, 25,456 genes, 6 donors", "combat_covid_6donors.h5ad",
            12_430_875, "b90b0dc642ae855b105776d1a37817d0104f04bd66fd478ad6f056d8a974fe2e"),
        _small("pig-airway", "pig airway, cystic fibrosis: 2,722 cells, 1,339 genes, 7 donors",
            "pig_airway_cf_7donors.h5ad", 1_325_021,
            "a962ec0b053823994c0223d081896d60cabbfba1919a30b4c38fe18d38e09b19"),
        _portal("hlca", "Human Lung Cell Atlas (the paper's Tables 6 and 8)", "hlca.h5ad",
            "6f6d381a-7701-4781-935c-db10d30de293"),
        _portal("sea-ad", "SEA-AD, middle temporal gyrus (the paper's Tables 4 and 7)", "sea_ad_mtg.h5ad",
            "1ca90a2d-2943-483d-b678-b809bf464c30"),
    )
}
# fmt: on

# Usable columns of each set. csle: one batch has no healthy donor, so batch is no covariate, as correcting for it would
# remove the effect of the condition. covid-tcells: severity is nearly nested in batch, so batch is no covariate there
# either. onek1k has no usable age or sex. perez-tcells has only two different ages. combat's lineages come from a
# marker rule. The portal's files have raw counts in raw.X; donor_id and disease are in its schema.
# The other columns are the authors', with names as published by other users of the files (not checked with a file).
SET_DEFAULTS: dict[str, dict[str, Any]] = {
    "csle": {"donor_key": "donor", "labels": ("cell_type", "condition"), "regress": ("age",)},
    "covid-tcells": {"donor_key": "donor", "labels": ("condition",), "regress": ("age",)},
    "onek1k": {"donor_key": "donor", "batch_key": "batch", "labels": ("cell_type",)},
    "perez-tcells": {"donor_key": "donor", "batch_key": "batch", "labels": ("cell_type", "cell_subtype")},
    "combat": {
        "donor_key": "donor",
        "labels": ("lineage_derived",),
        "exclude": ("lineage_derived=unassigned",),
        "n_top_genes": 5000,
    },
    "pig-airway": {"donor_key": "donor", "labels": ("cell_type", "condition")},
    "hlca": {
        "layer": "raw.X",
        "batch_key": "dataset",
        "donor_key": "donor_id",
        "labels": ("ann_finest_level", "disease"),
        "regress": ("age_or_mean_of_age_range",),
        "limit_first": ("ann_finest_level",),
        "n_top_genes": 5000,
        "min_genes": 20,
    },
    "sea-ad": {
        "layer": "raw.X",
        "donor_key": "donor_id",
        "labels": ("Supertype", "ADNC"),
        "exclude": ("ADNC=Reference",),
        "auroc_labels": ("ADNC",),
        "timing": "sea-ad",
        "max_cells": ("Supertype=100000",),
        "n_top_genes": 5000,
    },
}
