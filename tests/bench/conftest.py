import pytest
from tiny_codec import write_codec


@pytest.fixture(scope="session")
def codec_folder(tmp_path_factory):
  return str(write_codec(tmp_path_factory.mktemp("codecs") / "tiny", 0))
