"""Every optimizer and schedule with the options that change what it computes."""

from __future__ import annotations

from typing import Any

NAMES = [
    "SGD",
    "Adam",
    "AdamW",
    "RMSprop",
    "Adagrad",
    "Adadelta",
    "Adamax",
    "Nadam",
    "Lion",
    "Ftrl",
    "Lamb",
    "Adafactor",
    "Muon",
]
SCHEDULES: dict[str, list[dict[str, Any]]] = {
    "ExponentialDecay": [
        {"initial_learning_rate": 0.1, "decay_steps": 7, "decay_rate": 0.8},
        {
            "initial_learning_rate": 0.1,
            "decay_steps": 7,
            "decay_rate": 0.8,
            "staircase": True,
        },
    ],
    "InverseTimeDecay": [
        {"initial_learning_rate": 0.1, "decay_steps": 3, "decay_rate": 0.5},
        {
            "initial_learning_rate": 0.1,
            "decay_steps": 3,
            "decay_rate": 0.5,
            "staircase": True,
        },
    ],
    "PiecewiseConstantDecay": [
        {"boundaries": [5, 11], "values": [0.1, 0.05, 0.01]},
        {"boundaries": [5.5], "values": [1.0, 0.5]},
    ],
    "PolynomialDecay": [
        {"initial_learning_rate": 0.1, "decay_steps": 8, "power": 2.0},
        {"initial_learning_rate": 0.1, "decay_steps": 8, "cycle": True},
    ],
    "CosineDecay": [
        {"initial_learning_rate": 0.1, "decay_steps": 13, "alpha": 0.1},
        {
            "initial_learning_rate": 0.01,
            "decay_steps": 9,
            "warmup_target": 0.1,
            "warmup_steps": 4,
        },
    ],
    "CosineDecayRestarts": [
        {"initial_learning_rate": 0.1, "first_decay_steps": 5, "m_mul": 0.9},
        {"initial_learning_rate": 0.1, "first_decay_steps": 5, "t_mul": 1.0},
        {"initial_learning_rate": 0.1, "first_decay_steps": 4, "t_mul": 1.5},
    ],
}
ALL_SCHEDULES = [
    (name, arguments) for name, many in SCHEDULES.items() for arguments in many
]

OWN_OPTIONS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in NAMES),
    ("SGD", {"learning_rate": 0.1, "momentum": 0.9}),
    ("SGD", {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True}),
    ("Adam", {"learning_rate": 0.05, "beta_1": 0.5, "beta_2": 0.9, "epsilon": 1e-3}),
    ("Adam", {"learning_rate": 0.05, "beta_2": 0.6, "amsgrad": True}),
    ("AdamW", {"learning_rate": 0.1, "weight_decay": 0.1}),
    ("RMSprop", {"learning_rate": 0.05, "centered": True}),
    ("RMSprop", {"learning_rate": 0.05, "momentum": 0.8}),
    ("RMSprop", {"learning_rate": 0.05, "momentum": 0.8, "centered": True}),
    ("Adagrad", {"learning_rate": 0.1, "initial_accumulator_value": 0.5}),
    ("Adadelta", {"learning_rate": 1.0}),
    ("Adamax", {"learning_rate": 0.05}),
    ("Nadam", {"learning_rate": 0.05}),
    ("Lion", {"learning_rate": 0.01}),
    (
        "Ftrl",
        {
            "learning_rate": 0.1,
            "learning_rate_power": -0.7,
            "l1_regularization_strength": 0.01,
            "l2_regularization_strength": 0.02,
            "l2_shrinkage_regularization_strength": 0.03,
            "beta": 0.1,
        },
    ),
    ("Lamb", {"learning_rate": 0.05}),
    ("Adafactor", {"learning_rate": 0.3, "relative_step": False}),
    ("Muon", {"learning_rate": 0.05, "nesterov": False, "rms_rate": None}),
    ("Muon", {"learning_rate": 0.05, "exclude_layers": ["kern"], "ns_steps": 3}),
    ("Muon", {"learning_rate": 0.05, "weight_decay": None, "adam_lr_ratio": 0.5}),
]
SHARED_OPTIONS: list[dict[str, Any]] = [
    {"weight_decay": 0.05},
    {"clipnorm": 0.5},
    {"clipvalue": 0.3},
    {"global_clipnorm": 0.5},
    {"use_ema": True, "ema_momentum": 0.9},
    {"use_ema": True, "ema_momentum": 0.9, "ema_overwrite_frequency": 3},
    {"gradient_accumulation_steps": 3},
    {
        "gradient_accumulation_steps": 2,
        "use_ema": True,
        "ema_overwrite_frequency": 3,
        "clipnorm": 0.5,
        "weight_decay": 0.05,
    },
    {"loss_scale_factor": 128.0},
]
CASES = [
    *OWN_OPTIONS,
    *(
        ("SGD", {"learning_rate": 0.1, "momentum": 0.9} | options)
        for options in SHARED_OPTIONS
    ),
    *(("Nadam", {"learning_rate": 0.05} | options) for options in SHARED_OPTIONS),
]
