from ibdrr_tf.evaluation.ledger import Ledger


def test_total_is_every_byte_once():
  ledger = Ledger(
    payload=1000,
    index=200,
    raw_exemplars=30,
    codec_vqvae=4,
    codec_bitswap=50000,
    other_models=600000,
    images=7,
    codes=800,
    old_network=590000,
    old_network_8bit=150000,
  )
  record = ledger.to_json()
  assert record["total"] == 651234
  assert record["bits_per_code"] == 10.0
  # Generators stay; the network counts once, in the form that all have.
  assert record["images_and_decoders"] == 61234
  assert record["next_phase"] == 211234
  assert list(record) == [
    "payload",
    "index",
    "raw_exemplars",
    "codec_vqvae",
    "codec_bitswap",
    "other_models",
    "images",
    "total",
    "bits_per_code",
    "old_network_8bit",
    "images_and_decoders",
    "next_phase",
  ]


def test_no_codes_have_no_bits():
  assert Ledger(images=3, raw_exemplars=9).to_json()["bits_per_code"] is None
