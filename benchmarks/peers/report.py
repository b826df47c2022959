from pathlib import Path
IMAGES = Path("docs/images")
def plots(found): return {}
def render(found): return ""
