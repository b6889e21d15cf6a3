"""Songs and playlists."""

from collections.abc import Iterable

from msgspec.structs import replace

from cod_lightning.envs.apps.api import ApiError, App, AppDesk, find
from cod_lightning.envs.apps.schema import Like, Playlist, Song

music = App("music", "Songs, playlists, likes.")
music.shows("song", Song)
music.shows("playlist", Playlist)
music.creates("create_playlist", Playlist, "title")
music.updates("rename_playlist", Playlist, "title")
music.deletes("delete_playlist", Playlist)


@music.lists
def songs(desk: AppDesk, query: str = "", artist: str = "", genre: str = "") -> Iterable[Song]:
    """Songs whose title contains the query, by this artist, of this genre."""
    rows = desk.db.all(Song)
    return (s for s in rows if query.lower() in s.title.lower() and artist in ("", s.artist) and genre in ("", s.genre))


music.values("genres", Song, "genre", "All genres.")


@music.lists
def playlists(desk: AppDesk) -> Iterable[Playlist]:
    """The person's playlists, with the ids of their songs."""
    return desk.db.all(Playlist)


@music.writes
def add_song(desk: AppDesk, id: int, song_id: int) -> Playlist:
    """Puts a song at the end of a playlist."""
    playlist, song = find(desk, Playlist, id), find(desk, Song, song_id)
    if song.id in playlist.songs:
        raise ApiError(409, "the playlist has that song already")
    return desk.db.put(replace(playlist, songs=(*playlist.songs, song.id)))


@music.writes
def remove_song(desk: AppDesk, id: int, song_id: int) -> Playlist:
    """Takes a song from a playlist."""
    playlist = find(desk, Playlist, id)
    if song_id not in playlist.songs:
        raise ApiError(404, "the playlist has no such song")
    return desk.db.put(replace(playlist, songs=tuple(one for one in playlist.songs if one != song_id)))


@music.lists
def likes(desk: AppDesk) -> Iterable[Song]:
    """Songs that the person likes."""
    return (find(desk, Song, like.song_id) for like in desk.db.all(Like))


def _like(desk: AppDesk, song_id: int) -> Like | None:
    return next((like for like in desk.db.all(Like) if like.song_id == song_id), None)


@music.writes
def like(desk: AppDesk, song_id: int) -> Like:
    """Likes a song."""
    if _like(desk, find(desk, Song, song_id).id):
        raise ApiError(409, "the song is liked already")
    return desk.db.add(Like(song_id=song_id))


@music.writes
def unlike(desk: AppDesk, song_id: int) -> dict[str, int]:
    """Takes that back."""
    if (found := _like(desk, song_id)) is None:
        raise ApiError(404, "the song is not liked")
    desk.db.remove(found)
    return {"unliked": song_id}
