"""Planted secrets: none is real; each has the form that its issuer uses.

Written in pieces, so that no scanner of repositories takes this file for a leak.
"""

from __future__ import annotations

_HEX = "0123456789abcdef" * 4
_MIXED = "Qx7Lm2Vt9Ka4Rb8Nc3Zd6We1Yf5Ug0Hs"

SECRETS: dict[str, str] = {
    "Hugging Face": "hf" + "_" + _MIXED + "Ab",
    "OpenAI": "sk" + "-proj-" + _MIXED,
    "Anthropic": "sk" + "-ant-api03-" + _MIXED,
    "GitHub classic": "gh" + "p_" + _MIXED + "1234",
    "GitHub fine grained": "github" + "_pat_11ABCDEFG0" + _MIXED,
    "GitLab": "glpat" + "-" + _MIXED[:20],
    "AWS key id": "AKIA" + "QX7LM2VT9KA4RB8N",
    "AWS secret": "aws_secret_access_key=" + _MIXED + "/+zZ12",
    "Google API": "AIza" + "SyB" + _MIXED,
    "Google OAuth": "ya29" + ".a0Af" + _MIXED,
    "Slack": "xox" + "b-123456789012-" + _MIXED[:24],
    "Stripe": "sk" + "_live_" + _MIXED[:24],
    "NVIDIA": "nvapi" + "-" + _MIXED,
    "Databricks": "dapi" + _HEX[:32],
    "npm": "npm" + "_" + _MIXED + "Cd3F",
    "PyPI": "pypi" + "-AgEIcHlwaS5vcmcC" + _MIXED,
    "Docker": "dckr" + "_pat_" + _MIXED[:27],
    "Vault": "hvs" + ".CAESI" + _MIXED,
    "SendGrid": "SG" + "." + _MIXED[:22] + "." + _MIXED[:20],
    "Groq": "gsk" + "_" + _MIXED + _MIXED[:16],
    "Replicate": "r8" + "_" + _MIXED[:30],
    "Telegram": "1234567890:AA" + _MIXED + "q",
    "Twilio": "SK" + _HEX[:32],
    "JWT": "eyJ" + "hbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiJqb2huIn0." + _MIXED,
    "bearer": "Authorization: Bearer " + _MIXED,
    "password": "password=Tr0ub4dor-and-3",
    "password in JSON": '"passwd": "Tr0ub4dor-and-4"',
    "token option": "train.py --hf-token " + "Zq9Xw8Ev7Ru6Ty5",
    "environment": "WANDB_API_KEY=" + _HEX[:40],
    "URL": "https://joan:Tr0ub4dor-and-5@example.org/x",
    "signed URL": "https://example.org/x?sig=" + _MIXED + "%3D",
    "private key": "-----BEGIN RSA PRIVATE KEY-----\n" + _MIXED + "\n-----END RSA PRIVATE KEY-----",
    "SSH key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5" + _MIXED + " joan@laptop.example.org",
    "email": "joan.quill@example.org",
    "home": "/home/joanquill/run/model.py(12): forward",
    "Mac home": "/Users/joanquill/run.py(3): main",
    "Windows home": r"C:\Users\joanquill\run.py(3): main",
    "user": "USER=joanquill",
    "IPv4": "10.214.33.7:29500",
    "IPv6": "2001:db8:85a3:8d3:1319:8a2e:370:7348",
    "MAC": "3c:ec:ef:7b:21:9a",
    "cloud host": "ip-10-214-33-7.ec2.internal",
    "cluster host": "gpu-node-117.prod.corp",
}
"""A text with a secret in it, by kind."""

TELLTALES: tuple[str, ...] = (
    _MIXED[:20],
    "QX7LM2VT9KA4RB8N",
    _HEX[:32],
    "Tr0ub4dor",
    "Zq9Xw8Ev7Ru6Ty5",
    "joan",
    "10.214.33.7",
    "10-214-33-7",
    "2001:db8",
    "3c:ec:ef",
    "gpu-node-117",
    "eyJzdWIiOiJqb2huIn0",
)
"""What may be found nowhere afterwards."""
